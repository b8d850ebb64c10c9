import ArgumentParser
import Definitions
import FoundationEssentials
import HoldfastCore
import Logging
import Storage
import StorageSQLite

/// Merges profiles from a file or standard input into the database.
struct ImportCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "import",
        abstract:
            "Merges profiles from a file, of Holdfast or another system, into the database while servers use it.",
        discussion: """
            The exit status is 1 if anything is refused. Standard error lists the first \(Refusals.limit) refusals with \
            their lines, and counts the others. 'holdfast manual MigrateToHoldfast' has the steps of a migration.
            """)

    @Argument(help: "The file; standard input if it is '-' or missing.")
    var file: String?

    @Option(
        help: .init(
            "The format: \(ImportSource.names) (default: profiles, one JSON object per line).", valueName: "format"))
    var from = ImportSource.profiles

    @OptionGroup var database: DatabaseOptions
    @OptionGroup var rules: ProfileRuleOptions
    @OptionGroup var format: ImportFormatOptions

    @Flag(help: "Keep stored assignments that differ from imported ones.")
    var keep = false

    @Flag(help: "Create the database if there is none.")
    var create = false

    @Flag(help: "Store nothing; print what would be stored, refused and overwritten.")
    var dryRun = false

    func run() throws {
        let environment = ProcessInfo.processInfo.environment
        let rules = try rules.rules(environment: environment)
        try format.check(for: from)
        let input = try ImportInput(file)
        let location = try database.location(environment: environment)
        if !location.isPostgreSQL { try expectDatabase(location.text) }
        let store = try StoreFactory.open(location, rules, isReadOnly: dryRun)
        defer { store.close() }
        // The catalog adds lifetimes and archived experiments to the rules of the store.
        let catalog = try StoreFactory.projects(of: store)
        defer { catalog.close() }
        var reader = try format.reader(of: from, catalog)
        let session = try BackgroundSession(store, label: "import")
        defer { session.close() }
        let sink: any ImportSink =
            dryRun ? ImportPreview(session, rules, keep: keep) : ImportedProfiles(session, keep: keep)
        let readFailure = Self.pass(input, through: &reader, to: sink)
        // What was read before a failure is stored, and its refusals are printed.
        sink.finish()
        if let failure = sink.failure ?? readFailure {
            throw Failure("\(failure); \(dryRun ? 0 : sink.imported) \(from.elements) were imported")
        }
        for note in reader.notes { OpenFile.printError("\(note)\n") }
        print(sink.summary)
        if sink.refused > 0 { throw ExitCode(1) }
    }

    /// Passes the elements of the input to the sink, until the end of the input or a failure of the sink.
    ///
    /// - Returns: why the input could not be read; `nil` if it could.
    private static func pass(
        _ input: ImportInput, through reader: inout any ProfileReader, to sink: any ImportSink
    ) -> String? {
        do throws(Failure) {
            while sink.failure == nil, let bytes = try input.read() {
                bytes.withUnsafeBytes { bytes in reader.append(bytes) { sink.take($0) } }
            }
            reader.end { sink.take($0) }
            return nil
        } catch {
            return error.description
        }
    }

    /// Checks that the SQLite file exists, or may be created.
    private func expectDatabase(_ path: String) throws {
        let exists = FileManager.default.fileExists(atPath: path)
        // A server or an import migrates an older database; a dry run must not.
        if dryRun, exists { try DatabaseMaintenance.expectCurrentVersion(path: path) }
        if dryRun, !exists {
            throw Failure("a dry run compares with a database, which must exist; there is no \(path)")
        }
        guard create || exists else {
            throw Failure("the database must exist, or --create must be given; there is no \(path)")
        }
    }
}

/// The file or standard input that is imported.
struct ImportInput {
    private let name: String
    private let handle: OpenFile

    /// - Throws: ``Failure`` if the file cannot be read.
    init(_ file: String?) throws {
        guard let file, file != "-" else {
            name = "standard input"
            handle = .standardInput
            return
        }
        name = file
        guard !FileManager.default.directoryExists(atPath: file) else {
            throw Failure("the import must be a file; \(file) is a directory")
        }
        do {
            handle = try OpenFile(path: file)
        } catch {
            throw Self.unreadable(file, error)
        }
    }

    /// Returns the next piece, at most 256 KiB, so that a large file is never in memory as a whole; `nil` at the end.
    func read() throws(Failure) -> [UInt8]? {
        do {
            let bytes = try handle.read(upToCount: 256 * 1024)
            return bytes.isEmpty ? nil : bytes
        } catch {
            throw Self.unreadable(name, error)
        }
    }

    /// Describes a failure to read the input.
    private static func unreadable(_ name: String, _ error: Failure) -> Failure {
        Failure("\(name) cannot be read: \(error)")
    }
}

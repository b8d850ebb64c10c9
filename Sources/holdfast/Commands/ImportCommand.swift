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
        // The catalog updates the rules of the store with lifetimes and archived experiments.
        let catalog = try StoreFactory.projects(of: store)
        defer { catalog.close() }
        var reader = try format.reader(of: from, catalog)
        let session = try BackgroundSession(store, label: "import")
        defer { session.close() }
        let sink: any ImportSink =
            dryRun ? ImportPreview(session, rules, keep: keep) : ImportedProfiles(session, keep: keep)
        var readFailure: String?
        do throws(Failure) {
            while sink.failure == nil, let bytes = try input.read() {
                bytes.withUnsafeBytes { bytes in reader.append(bytes) { sink.take($0) } }
            }
            reader.end { sink.take($0) }
        } catch {
            readFailure = error.description
        }
        sink.finish()
        if let failure = sink.failure ?? readFailure {
            throw Failure("\(failure); \(dryRun ? 0 : sink.imported) \(from.elements) were imported")
        }
        for note in reader.notes { OpenFile.printError("\(note)\n") }
        print(sink.summary)
        if sink.refused > 0 { throw ExitCode(1) }
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

/// The formats that can be imported.
enum ImportSource: String, CaseIterable, ExpressibleByArgument {
    case profiles, redis, csv, cassandra, growthbook

    static var names: String {
        let names = allCases.map(\.rawValue)
        return names.dropLast().joined(separator: ", ") + " or " + names[names.count - 1]
    }

    /// The word for the elements of the format in messages.
    var elements: String {
        switch self {
        case .profiles: "lines"
        case .redis: "keys"
        case .csv, .cassandra: "records"
        case .growthbook: "documents"
        }
    }
}

/// Options that only apply to some formats.
struct ImportFormatOptions: ParsableArguments {
    @Option(help: .init("csv, cassandra: the names of the columns, if the file has no header.", valueName: "list"))
    var header: String?

    @Option(
        help: .init(
            "csv, cassandra: the column of a value, such as user_id=uid; may be repeated.", valueName: "name=column"))
    var column: [String] = []

    @Option(help: .init("csv: the separator of fields: a character, or 'tab' (default: ,).", valueName: "character"))
    var delimiter: String?

    @Option(help: .init("growthbook: the attribute that has the user ids (default: id).", valueName: "name"))
    var attribute: String?

    @Option(help: .init("csv, cassandra, growthbook: the project of the experiments.", valueName: "key"))
    var sdkKey: String?

    /// - Throws: ``Failure`` if an option does not apply to the format.
    func check(for source: ImportSource) throws {
        let tables: [ImportSource] = [.csv, .cassandra]
        if header != nil { try expect(source, among: tables, for: "header") }
        if !column.isEmpty { try expect(source, among: tables, for: "column") }
        if delimiter != nil { try expect(source, among: [.csv], for: "delimiter") }
        if attribute != nil { try expect(source, among: [.growthbook], for: "attribute") }
        if sdkKey != nil { try expect(source, among: tables + [.growthbook], for: "sdk-key") }
    }

    private func expect(_ source: ImportSource, among formats: [ImportSource], for option: String) throws {
        guard !formats.contains(source) else { return }
        let names = formats.map { "--from \($0.rawValue)" }.joined(separator: " or ")
        throw Failure("--\(option) must come with \(names); got --from \(source.rawValue)")
    }

    /// Returns the reader of a format, with the options that apply to it.
    ///
    /// - Throws: ``Failure`` if the value of an option is invalid.
    func reader(of source: ImportSource, _ catalog: ProjectCatalog) throws -> any ProfileReader {
        do throws(CoreError) {
            switch source {
            case .profiles: return ProfileLines()
            case .redis: return RedisProfiles()
            case .csv, .cassandra:
                return try DelimitedProfiles(try delimitedOptions(of: source), names: try names(catalog))
            case .growthbook:
                return GrowthBookProfiles(names: try names(catalog), attribute: attribute ?? "id")
            }
        } catch {
            throw Failure(error.description)
        }
    }

    /// Returns the names of the experiments, to which the files of other systems refer.
    private func names(_ catalog: ProjectCatalog) throws(CoreError) -> ExperimentNames {
        try ExperimentNames(catalog.snapshot(), sdkKey: sdkKey)
    }

    private func delimitedOptions(of source: ImportSource) throws(CoreError) -> DelimitedProfiles.Options {
        var options = DelimitedProfiles.Options()
        options.escapesByBackslash = source == .cassandra
        options.header = header?.split(separator: ",", omittingEmptySubsequences: false).map(String.init)
        if let delimiter {
            let text = delimiter == "tab" ? "\t" : delimiter
            guard let byte = text.utf8.first, text.utf8.count == 1, !"\"\r\n\\".utf8.contains(byte) else {
                throw CoreError(
                    .invalid,
                    "--delimiter must be one ASCII character, not a quotation mark, or 'tab'; got '\(delimiter)'")
            }
            options.delimiter = byte
        }
        for column in column {
            let parts = column.split(separator: "=", maxSplits: 1).map(String.init)
            guard parts.count == 2, DelimitedProfiles.knownColumns.contains(parts[0]) else {
                let known = DelimitedProfiles.knownColumns.joined(separator: ", ")
                throw CoreError(
                    .invalid, "--column must be NAME=COLUMN with one of the names \(known); got '\(column)'")
            }
            options.columns[parts[0]] = parts[1]
        }
        return options
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

    /// Returns the next piece; `nil` at the end.
    func read() throws(Failure) -> [UInt8]? {
        do {
            let bytes = try handle.read(upToCount: 256 * 1024)
            return bytes.isEmpty ? nil : bytes
        } catch {
            throw Self.unreadable(name, error)
        }
    }

    private static func unreadable(_ name: String, _ error: Failure) -> Failure {
        Failure("\(name) cannot be read: \(error)")
    }
}

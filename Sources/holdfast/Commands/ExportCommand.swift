import ArgumentParser
import struct Bucketing.Identifier
import FoundationEssentials
import Glibc
import HoldfastCore
import Storage
import StorageSQLite

/// Writes what is stored as NDJSON.
struct ExportCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "export",
        abstract: "Writes what is stored, one JSON object per line.",
        discussion: "'profiles' reads a database; the others ask a server, and can follow what changes.",
        subcommands: [
            ExportProfilesCommand.self, ExportAssignmentsCommand.self, ExportExposuresCommand.self,
            ExportEventsCommand.self, ExportAuditCommand.self, ExportAllCommand.self,
        ],
        defaultSubcommand: ExportProfilesCommand.self)
}

/// Writes all profiles as NDJSON to standard output.
struct ExportProfilesCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "profiles",
        abstract: "Writes all profiles to standard output while servers use the database.")

    @OptionGroup var database: DatabaseOptions

    @Flag(help: "Include the source and the times of each assignment.")
    var detail = false

    private static let page = 1_000

    func run() throws {
        let location = try database.location(environment: ProcessInfo.processInfo.environment)
        if !location.isPostgreSQL {
            let path = location.text
            guard FileManager.default.fileExists(atPath: path) else { throw Failure("there is no database \(path)") }
            try DatabaseMaintenance.expectCurrentVersion(path: path)
        }
        let store = try StoreFactory.open(location, isReadOnly: true)
        defer { store.close() }
        let session = try BackgroundSession(store, label: "export")
        defer { session.close() }
        let progress = Progress("exported")
        var last: Identifier?
        repeat {
            let page: ProfilePage
            do throws(StorageError) {
                page = try session.wait { [last] session, done in
                    session.read(.profiles(after: last, limit: Self.page), done)
                }
            } catch {
                throw Failure("the export \(last.map { "stopped after '\($0)'" } ?? "cannot begin"): \(error)")
            }
            let lines = page.profiles.flatMap { ProfileLine.encode($0.userID, $0.profile, detail: detail) }
            do {
                try OpenFile.standardOutput.write(lines)
            } catch {
                throw Failure("standard output cannot be written: \(error)")
            }
            progress.add(page.profiles.count)
            last = page.end
        } while last != nil
        progress.finish()
    }
}

/// Where an export from a server goes, and from where it goes on.
struct ServerExportOptions: ParsableArguments {
    @Option(help: .init("The file that keeps how far the export has come.", valueName: "file"))
    var after: String

    @Option(help: .init("The directory of the files, or - for standard output (default: .).", valueName: "directory"))
    var directory = "."

    @Option(help: .init("The size at which a file ends (default: 256MiB).", valueName: "size"))
    var maxBytes: String?

    @Option(help: .init("The age at which a file ends (default: 1h).", valueName: "time"))
    var every: String?

    @Flag(help: "Wait for what comes next (default: end at what there is).")
    var follow = false

    @OptionGroup var server: ServerOptions

    func run(_ kinds: [ExportKind]) throws {
        let settings = Settings(environment: [:])
        var (size, time) = (ByteCount(bytes: 256 * ByteCount.MiB), Period(seconds: 3_600))
        try settings.apply(maxBytes, "max-bytes", in: 1...ByteCount.TiB, to: &size)
        try settings.apply(every, "every", in: Period(seconds: 1)...Period.longest, to: &time)
        let files = try ExportFiles(
            kinds, statePath: after, directory: directory == "-" ? nil : directory, maximumBytes: size.bytes,
            seconds: time.seconds)
        var export = ServerExport(try server.client(), into: files, follows: follow)
        try export.run()
    }
}

/// Writes assignments and overrides.
struct ExportAssignmentsCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "assignments", abstract: "Writes assignments and overrides of a server to files.")

    @OptionGroup var options: ServerExportOptions

    func run() throws { try options.run([.assignments]) }
}

/// Writes exposures.
struct ExportExposuresCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "exposures", abstract: "Writes exposures of a server to files.")

    @OptionGroup var options: ServerExportOptions

    func run() throws { try options.run([.exposures]) }
}

/// Writes goal events.
struct ExportEventsCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "events", abstract: "Writes goal events of a server to files.")

    @OptionGroup var options: ServerExportOptions

    func run() throws { try options.run([.events]) }
}

/// Writes the audit log.
struct ExportAuditCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "audit", abstract: "Writes the audit log of a server to files.")

    @OptionGroup var options: ServerExportOptions

    func run() throws { try options.run([.audit]) }
}

/// Writes all of these, each to files of its own.
struct ExportAllCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "all",
        abstract: "Writes assignments, exposures, events and the audit log of a server to files.")

    @OptionGroup var options: ServerExportOptions

    func run() throws { try options.run(ExportKind.allCases) }
}

/// Shows a count on standard error while a long command runs, if that is a terminal.
final class Progress {
    private let verb: String
    private let isShown = isatty(STDERR_FILENO) == 1
    private var count = 0
    private var shown = 0

    init(_ verb: String) {
        self.verb = verb
    }

    func add(_ number: Int) {
        count += number
        guard isShown, count - shown >= 10_000 else { return }
        shown = count
        show(end: "\r")
    }

    func finish() {
        if isShown, count > 0 { show(end: "\n") }
    }

    private func show(end: String) {
        OpenFile.printError("\(verb) \(count) profiles\(end)")
    }
}

import ArgumentParser
import struct Bucketing.Identifier
import FoundationEssentials
import Glibc
import HoldfastCore
import JSON
import Storage
import StorageSQLite

/// Exports records as NDJSON. Each kind has a subcommand.
struct ExportCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "export",
        abstract: "Writes what is stored, one JSON object per line.",
        discussion:
            "'profiles', 'attributes' and 'definitions' read a database; the others ask a server, and can follow what "
            + "changes.",
        subcommands: [
            ExportProfilesCommand.self, ExportAssignmentsCommand.self, ExportExposuresCommand.self,
            ExportEventsCommand.self, ExportAuditCommand.self, ExportAllCommand.self, ExportDefinitionsCommand.self,
            ExportAttributesCommand.self,
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

    fileprivate static let page = 1_000

    func run() throws {
        try database.export { session in
            let progress = Progress("exported")
            var last: Identifier?
            repeat {
                let page = try session.page(after: last, .profiles(after: last, limit: Self.page))
                try ExportCommand.write(
                    page.profiles.flatMap { ProfileLine.encode($0.userID, $0.profile, detail: detail) })
                progress.add(page.profiles.count)
                last = page.end
            } while last != nil
            progress.finish()
        }
    }
}

/// Writes the attributes of all users to standard output.
struct ExportAttributesCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "attributes",
        abstract: "Writes the attributes of all users to standard output while servers use the database.")

    @OptionGroup var database: DatabaseOptions

    func run() throws {
        try database.export { session in
            let schema = try session.projects().schema
            var last: Identifier?
            repeat {
                let page = try session.page(after: last, .userRecords(after: last, limit: ExportProfilesCommand.page))
                for line in page.lines.split(separator: UInt8(ascii: "\n")) {
                    let user = (try JSONParser().parse(Array(line))).object
                    guard let user, let name = user["user_id"]?.string, let text = user["attributes"]?.string else {
                        continue
                    }
                    guard let bytes = Base64URL.decode(text.utf8) else {
                        throw Failure("the attributes of '\(name)' cannot be read")
                    }
                    let record = try AttributeRecord(stored: bytes, of: Identifier(name))
                    guard !record.isEmpty else { continue }
                    var writer = JSONWriter()
                    writer.beginObject()
                    writer.member("user_id", name)
                    writer.key("attributes")
                    record.append(to: &writer, schema)
                    writer.endObject()
                    writer.endLine()
                    try ExportCommand.write(writer.finish())
                }
                last = page.end
            } while last != nil
        }
    }
}

/// Writes current and former definitions to standard output, which explain the ids in other exports.
struct ExportDefinitionsCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "definitions",
        abstract:
            "Writes what the ids of experiments, holdouts and their variations mean, with the history that is kept.")

    @OptionGroup var database: DatabaseOptions

    func run() throws {
        try database.export { session in
            for project in try session.projects().projects {
                let key = project.sdkKey
                var history = DefinitionHistory(sdkKey: key)
                let versions = try session.wait { $0.read(.datafileHistory(sdkKey: key, limit: 1_000_000), $1) }
                for version in versions.reversed() {
                    // A datafile that was deleted meanwhile is left out.
                    let number = version.version
                    let stored = try session.wait { $0.read(.datafile(sdkKey: key, version: number), $1) }
                    if let stored { try history.add(stored) }
                }
                try ExportCommand.write(
                    history.rows.flatMap { JSONValue.object($0).encoded() + [UInt8(ascii: "\n")] })
            }
        }
    }
}

extension ExportCommand {
    fileprivate static func write(_ lines: [UInt8]) throws {
        do {
            try OpenFile.standardOutput.write(lines)
        } catch {
            throw Failure("standard output cannot be written: \(error)")
        }
    }
}

extension DatabaseOptions {
    /// Opens the database for reading. Servers may use it at the same time.
    fileprivate func export(_ work: (BackgroundSession) throws -> Void) throws {
        let location = try location(environment: ProcessInfo.processInfo.environment)
        if !location.isPostgreSQL {
            let path = location.text
            guard FileManager.default.fileExists(atPath: path) else { throw Failure("there is no database \(path)") }
            try DatabaseMaintenance.expectCurrentVersion(path: path)
        }
        let store = try StoreFactory.open(location, isReadOnly: true)
        defer { store.close() }
        let session = try BackgroundSession(store, label: "export")
        defer { session.close() }
        do {
            try work(session)
        } catch let error as StorageError {
            throw Failure("the export failed: \(error)")
        }
    }
}

extension BackgroundSession {
    fileprivate func page<Page: Sendable>(after last: Identifier?, _ query: StoreQuery<Page>) throws(Failure) -> Page {
        do throws(StorageError) {
            return try wait { session, done in session.read(query, done) }
        } catch {
            throw Failure("the export \(last.map { "stopped after '\($0)'" } ?? "cannot begin"): \(error)")
        }
    }

    fileprivate func projects() throws -> ProjectState {
        let state = try wait { $0.read(.projects(ifChangedSince: -1, datafilesAfter: .max), $1) }
        guard let state else { throw Failure("the database has no projects' state") }
        return state
    }
}

/// The destination of an export from a server, and the state at which it continues.
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

    @Option(
        help: .init(
            "A file for Prometheus's textfile collector that says how far the export is behind (default: none).",
            valueName: "file"))
    var metricsFile: String?

    @OptionGroup var server: ServerOptions

    func run(_ kinds: [ExportKind]) throws {
        let settings = Settings(environment: [:])
        var (size, time) = (ByteCount(bytes: 256 * ByteCount.MiB), Period(seconds: 3_600))
        try settings.apply(maxBytes, "max-bytes", in: 1...ByteCount.TiB, to: &size)
        try settings.apply(every, "every", in: Period(seconds: 1)...Period.longest, to: &time)
        let files = try ExportFiles(
            kinds, statePath: after, directory: directory == "-" ? nil : directory, maximumBytes: size.bytes,
            seconds: time.seconds)
        let metrics = metricsFile.map { ExportMetrics(path: $0, kinds, follows: follow) }
        var export = ServerExport(try server.client(), into: files, follows: follow, metrics: metrics)
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

/// Writes all kinds, each to files of its own.
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

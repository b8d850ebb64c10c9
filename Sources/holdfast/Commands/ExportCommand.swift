import ArgumentParser
import struct Bucketing.Identifier
import FoundationEssentials
import Glibc
import HoldfastCore
import JSON
import Storage
import StorageSQLite

/// Exports records as NDJSON. Each kind has a subcommand. The subcommands that read a database are in this file, the
/// subcommands that ask a server in `ServerExportCommands.swift`.
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

    /// The number of users that are read at once.
    fileprivate static let pageSize = 1_000

    func run() throws {
        try database.export { session in
            let progress = Progress("exported")
            var last: Identifier?
            repeat {
                let page = try session.page(after: last, .profiles(after: last, limit: Self.pageSize))
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
                let page = try session.page(
                    after: last, .userRecords(after: last, limit: ExportProfilesCommand.pageSize))
                for line in page.lines.split(separator: UInt8(ascii: "\n")) {
                    if let exported = try Self.line(of: Array(line), schema) { try ExportCommand.write(exported) }
                }
                last = page.end
            } while last != nil
        }
    }

    /// Returns the exported line of a user's record; `nil` if the user has no attributes.
    private static func line(of stored: [UInt8], _ schema: AttributeSchema) throws -> [UInt8]? {
        let user = try JSONParser().parse(stored).object
        guard let user, let name = user["user_id"]?.string, let text = user["attributes"]?.string else { return nil }
        guard let bytes = Base64URL.decode(text.utf8) else {
            throw Failure("the attributes of '\(name)' cannot be read")
        }
        let record = try AttributeRecord(stored: bytes, of: Identifier(name))
        guard !record.isEmpty else { return nil }
        var writer = JSONWriter()
        writer.beginObject()
        writer.member("user_id", name)
        writer.key("attributes")
        record.append(to: &writer, schema)
        writer.endObject()
        writer.endLine()
        return writer.finish()
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
                // The limit is the maximum of `--datafile-history`, so all versions are read, the newest first.
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
    /// Writes lines to standard output.
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
    /// Reads a page. The error tells after which user the export has stopped.
    fileprivate func page<Page: Sendable>(after last: Identifier?, _ query: StoreQuery<Page>) throws(Failure) -> Page {
        do throws(StorageError) {
            return try wait { session, done in session.read(query, done) }
        } catch {
            throw Failure("the export \(last.map { "stopped after '\($0)'" } ?? "cannot begin"): \(error)")
        }
    }

    /// Reads all projects, without their datafiles.
    fileprivate func projects() throws -> ProjectState {
        // -1 reads the state in any case, and `.max` leaves the datafiles out.
        let state = try wait { $0.read(.projects(ifChangedSince: -1, datafilesAfter: .max), $1) }
        guard let state else { throw Failure("the database has no projects' state") }
        return state
    }
}

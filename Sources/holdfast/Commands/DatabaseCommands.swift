import ArgumentParser
import Chronology
import Dispatch
import FoundationEssentials
import Glibc
import HoldfastCore
import Storage
import StorageSQLite

/// Makes a consistent copy of the database while servers use it.
struct BackupCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "backup", abstract: "Copies the database to a new file while servers use it.")

    @OptionGroup var database: DatabaseOptions

    @Argument(help: "The file of the copy, which must not exist yet; or a directory, for a file with the date.")
    var file: String

    func run() throws {
        let path = try database.path(environment: ProcessInfo.processInfo.environment, instead: "pg_dump")
        let target = try Backups(directory: file)?.newFile ?? file
        let progress = CopyProgress(of: path, to: DatabaseMaintenance.partialName(of: target))
        defer { progress.finish() }
        try DatabaseMaintenance.backUp(path: path, to: target)
        print("copied \(path) to \(target)")
    }
}

/// Puts a backup in place of the database.
struct RestoreCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "restore",
        abstract: "Checks a backup and puts a copy of it in place of the database, which no server may use.",
        discussion: """
            The former files stay beside it under dated names. Without a backup, the database itself is what something else \
            has restored or copied, such as pg_restore: it begins another generation, so that edges and other readers of its \
            feed copy it anew.
            """)

    @OptionGroup var database: DatabaseOptions

    @Argument(help: "The backup; or a directory, whose newest one is taken; or nothing.")
    var backup: String?

    func run() throws {
        guard let backup else { return try beginGeneration() }
        let path = try database.path(environment: ProcessInfo.processInfo.environment, instead: "pg_restore")
        let source = try Backups(directory: backup)?.newest ?? backup
        let progress = CopyProgress(of: source, to: DatabaseMaintenance.partialName(of: path))
        defer { progress.finish() }
        let restored = try DatabaseMaintenance.restore(source, to: path, date: Backups.date())
        print(
            "restored \(source) to \(path): version \(restored.version), \(restored.profiles) profiles, "
                + "\(restored.assignments) assignments")
        if let former = restored.former { print("the former database is now \(former)") }
    }

    /// Begins another generation of the feed in a database that something else has restored. The cursors of readers are
    /// then invalid, so that they copy the database anew.
    private func beginGeneration() throws {
        let location = try database.location(environment: ProcessInfo.processInfo.environment)
        if !location.isPostgreSQL, !FileManager.default.fileExists(atPath: location.text) {
            throw Failure("the database must exist; there is no \(location)")
        }
        let store = try StoreFactory.open(location)
        defer { store.close() }
        let session = try BackgroundSession(store, label: "restore")
        defer { session.close() }
        // Only the generation is needed. -1 reads the state in any case, and `.max` leaves the datafiles out.
        let state = try session.wait { $0.read(.projects(ifChangedSince: -1, datafilesAfter: .max), $1) }
        // An epoch of 0 means that the database has no feed.
        guard let former = state?.generation, former.epoch != 0 else {
            return print("\(location) has no feed, so that nobody follows it")
        }
        try session.wait { session, done in
            // 0: the renewal is not the consequence of an epoch that a client has presented.
            session.write(.renewGeneration(former, presented: 0, by: Author(name: "holdfast restore")), done)
        }
        print("\(location) has begun another generation: edges and readers of its feed copy it anew")
    }
}

/// A directory of backups. Their names sort by time.
private struct Backups {
    /// The path without a slash at the end. It is therefore empty for the root directory.
    private let directory: String

    /// Reads an argument that names a directory of backups or a single backup.
    ///
    /// - Returns: `nil` if the path is not that of a directory, but of a single backup.
    /// - Throws: ``Failure`` if the path ends with a slash, but there is no such directory.
    init?(directory path: String) throws {
        var trimmed = path[...]
        while trimmed.count > 1, trimmed.hasSuffix("/") { trimmed.removeLast() }
        guard FileManager.default.directoryExists(atPath: path) else {
            guard trimmed == path else { throw Failure("the directory must exist; there is no \(trimmed)") }
            return nil
        }
        directory = trimmed == "/" ? "" : String(trimmed)
    }

    /// The path of a new backup, with the date.
    var newFile: String { "\(directory)/holdfast-\(Self.date()).db" }

    /// The path of the newest backup.
    ///
    /// - Throws: ``Failure`` if there is no backup.
    var newest: String {
        get throws {
            let names = try FileManager.default.contentsOfDirectory(atPath: directory.isEmpty ? "/" : directory)
            guard let name = names.filter({ $0.hasPrefix("holdfast-") && $0.hasSuffix("Z.db") }).max() else {
                throw Failure("the directory must have backups named holdfast-DATE.db; \(directory) has none")
            }
            return "\(directory)/\(name)"
        }
    }

    /// Returns the UTC time in a form for file names.
    static func date() -> String {
        // The first 19 characters are the date and the time without the fraction of a second.
        systemWallClock().rfc3339.prefix(19).filter { $0 != "-" && $0 != ":" } + "Z"
    }
}

/// Creates the database, or migrates it to this release's version. `serve` does the same when it starts.
struct MigrateCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "migrate", abstract: "Creates the database, or migrates it to this release's version.")

    @OptionGroup var database: DatabaseOptions
    @Option(
        help: ArgumentHelp(
            "Also decides for so many made-up users by each project, as it is stored and as the next edit will store it, "
                + "and fails if anything differs.", valueName: "users"))
    var verify: Int?

    func validate() throws {
        guard (1...1_000_000).contains(verify ?? 1) else { throw ValidationError("--verify must be 1 to 1000000") }
    }

    func run() throws {
        let location = try database.location(environment: ProcessInfo.processInfo.environment)
        let versions = try StoreFactory.migrate(location)
        print(
            versions.from == versions.to
                ? "\(location) has version \(versions.to) already"
                : "\(location) was migrated from version \(versions.from) to \(versions.to)")
        if let verify { try Self.verify(location, users: verify) }
    }

    /// Decides for made-up users by each project, by the stored datafile and by the one that the next edit will store.
    ///
    /// - Throws: an exit status if any decision differs.
    private static func verify(_ location: DatabaseLocation, users: Int) throws {
        let store = try StoreFactory.open(location, isReadOnly: true)
        defer { store.close() }
        let catalog = try StoreFactory.projects(of: store)
        defer { catalog.close() }
        let snapshot = catalog.snapshot()
        var differences = 0
        for record in snapshot.records {
            guard let project = snapshot.projects[record.sdkKey] else {
                print("\(record.sdkKey): this release cannot use the datafile")
                differences += 1
                continue
            }
            let check = AdoptionCheck(project, users: users)
            let size = "\(check.sdkKey): \(check.experiments) experiments, \(check.flags) flags"
            if check.staysWhole {
                print("\(size): elements have the same name, so the datafile stays one document")
            } else {
                let count = check.differences.count
                print("\(size), \(check.decisions) decisions: \(count == 0 ? "all equal" : "\(count) differences")")
            }
            for difference in check.differences { print("  \(difference)") }
            differences += check.differences.count
        }
        if differences > 0 { throw ExitCode.failure }
    }
}

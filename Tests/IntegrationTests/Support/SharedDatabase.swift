import APITestSupport
import PostgreSQLTestSupport

/// Where servers of a test have their database. It is deleted with the last reference.
protocol TestLocation: Sendable {
    /// What `--database` names.
    var location: String { get }
    /// Further options of the servers.
    var options: [String] { get }

    /// Kills the database, if it is a server, and starts it again.
    func crash() throws
}

enum SharedDatabase {
    static func make(
        _ kind: HistoryRun.Setting.Database, in directory: TemporaryDirectory
    ) throws -> any TestLocation {
        switch kind {
        case .sqlite: SQLiteLocation(directory: directory)
        case .postgreSQL(let kind, let crashes): try PostgreSQLLocation(kind, crashes: crashes)
        }
    }

    private struct SQLiteLocation: TestLocation {
        let directory: TemporaryDirectory
        var location: String { directory.file("holdfast.db") }
        var options: [String] { ServerProcess.smallLog }

        func crash() throws {}
    }

    private final class PostgreSQLLocation: TestLocation {
        private let database: TestDatabase

        /// - Parameter crashes: whether it has a server of its own, which may be killed.
        init(_ kind: TestDatabase.Kind, crashes: Bool) throws {
            let server = crashes ? try PostgreSQLServer(["fsync=off"], isCitus: kind == .citus) : nil
            database = try TestDatabase(kind, on: server)
        }

        var location: String { database.url }
        var options: [String] { database.isPooled ? ["--database-pooler"] : [] }

        func crash() throws {
            try database.server.crash()
        }
    }
}

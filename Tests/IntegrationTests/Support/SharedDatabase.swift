import APITestSupport
import Foundation
import Glibc
import PostgreSQLTestSupport
import ProcessTestSupport

/// Where servers of a test have their database. It is deleted with the last reference.
protocol TestLocation: Sendable {
    /// What `--database` names.
    var location: String { get }
    /// Further options of the servers.
    var options: [String] { get }
}

enum SharedDatabase {
    static func make(
        _ kind: HistoryRun.Setting.Database, in directory: TemporaryDirectory
    ) throws -> any TestLocation {
        switch kind {
        case .sqlite: SQLiteLocation(location: directory.file("holdfast.db"))
        case .postgreSQL: PostgreSQLLocation(try TestDatabase())
        case .pooled: try PooledLocation(try TestDatabase(), in: directory)
        case .serializable:
            try PostgreSQLLocation(
                TestDatabase(), "ALTER DATABASE %@ SET default_transaction_isolation = 'serializable'")
        case .citus: PostgreSQLLocation(try TestDatabase(on: try PostgreSQLServer(["fsync=off"], isCitus: true)))
        }
    }

    private struct SQLiteLocation: TestLocation {
        let location: String
        var options: [String] { ServerProcess.smallLog }
    }

    private final class PostgreSQLLocation: TestLocation {
        private let database: TestDatabase

        init(_ database: TestDatabase) {
            self.database = database
        }

        /// - Parameter statement: executed first, with the database's name in place of `%@`.
        convenience init(_ database: TestDatabase, _ statement: String) throws {
            try database.execute(statement.replacingOccurrences(of: "%@", with: database.name))
            self.init(database)
        }

        var location: String { database.url }
        var options: [String] { [] }
    }

    /// pgbouncer in transaction mode.
    private final class PooledLocation: TestLocation {
        private let database: TestDatabase
        private let pooler: ChildProcess
        let location: String

        init(_ database: TestDatabase, in directory: TemporaryDirectory) throws {
            self.database = database
            let port = try PostgreSQLServer.freePort()
            let file = try directory.write(
                """
                [databases]
                * = host=127.0.0.1 port=\(database.server.port) user=postgres
                [pgbouncer]
                listen_addr = 127.0.0.1
                listen_port = \(port)
                unix_socket_dir =
                auth_type = any
                pool_mode = transaction
                max_client_conn = 200
                default_pool_size = 8

                """, to: "pgbouncer.ini", mode: 0o644)
            guard
                let path = Executable.find("pgbouncer")
                    ?? ["/usr/sbin/pgbouncer"].first(where: { access($0, X_OK) == 0 })
            else { throw TestFailure("there is no pgbouncer; install the Debian package") }
            // It refuses to run as root.
            let command =
                getuid() == 0 ? ["/usr/bin/setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"] : []
            let words = command + [path, file]
            pooler = try ChildProcess(words[0], Array(words.dropFirst()))
            location = "postgresql://postgres@127.0.0.1:\(port)/\(database.name)"
            guard pooler.errors.first(where: { $0.contains("process up") }) != nil else {
                throw TestFailure("pgbouncer did not start: \(pooler.errors.text)")
            }
        }

        deinit {
            pooler.send(SIGKILL)
            pooler.wait()
        }

        var options: [String] { ["--database-pooler"] }
    }
}

import CPostgreSQL
import Dispatch
import Glibc
import Synchronization

/// Owns a connection of libpq, which only one thread at a time may use.
final class Handle: @unchecked Sendable {
    // Safe: the connector passes it to the executor of one session, and keeps no reference.
    let pointer: OpaquePointer

    fileprivate init(_ pointer: OpaquePointer) {
        self.pointer = pointer
    }

    deinit {
        PQfinish(pointer)
    }
}

/// Opens connections on its own threads: name resolution, the TLS handshake and SCRAM's key derivation would block an
/// event loop.
///
/// It uses libpq's blocking interface, because only that one applies `connect_timeout`: if the connection string has
/// several hosts and one does not respond, the next one is tried.
final class Connector: Sendable {
    private let configuration: PostgreSQLConfiguration
    /// Their number is the number of connections that are opened at the same time.
    private let queues = (0..<8).map { DispatchQueue(label: "postgresql-connector-\($0)", qos: .userInitiated) }
    private let next = Atomic<Int>(0)

    init(_ configuration: PostgreSQLConfiguration) {
        self.configuration = configuration
    }

    /// Connects on another thread.
    ///
    /// - Parameter completion: called on that thread.
    func connect(_ completion: @escaping @Sendable (Result<Handle, PostgreSQLError>) -> Void) {
        let number = next.wrappingAdd(1, ordering: .relaxed).newValue
        queues[Int(number.magnitude % UInt(queues.count))].async { [self] in
            completion(Result { () throws(PostgreSQLError) in try connect() })
        }
    }

    /// Makes prepared statements keep a plan that finds rows by their keys.
    ///
    /// By default PostgreSQL plans a statement anew at each execution while it deems that cheaper, which is always so for
    /// lookups of few users and doubles what they cost. And a plan that was made when a table was small reads the whole
    /// table, also after an import has filled it, until the table is analyzed. Without sequential scans each such plan uses
    /// the key. Statements that must read a whole table still do, with a nominal cost that would start the compiler of
    /// queries. Citus needs the values to plan a statement, and its nodes plan by themselves.
    private static let planning = """
        SELECT set_config(name, value, false)
        FROM (VALUES ('plan_cache_mode', 'force_generic_plan'), ('enable_seqscan', 'off'), ('jit', 'off'))
            AS settings (name, value)
        WHERE NOT EXISTS (SELECT FROM pg_extension WHERE extname = 'citus')
        """

    /// Connects and blocks until done.
    func connect() throws(PostgreSQLError) -> Handle {
        let handle = try Self.open(configuration)
        // Behind a pooler statements are planned each time.
        if !configuration.usesPooler { try handle.execute(Self.planning) }
        guard PQsetnonblocking(handle.pointer, 1) == 0, PQenterPipelineMode(handle.pointer) == 1 else {
            throw PostgreSQLError(connection: "libpq cannot use its pipeline mode")
        }
        return handle
    }

    /// Opens a connection in blocking mode, for the start of the store, commands and listeners.
    static func open(_ configuration: PostgreSQLConfiguration) throws(PostgreSQLError) -> Handle {
        guard ConnectionString(configuration.url).isWellFormed else {
            // libpq's message would contain the string with its password.
            throw PostgreSQLError(connection: "it must be a connection string of libpq, such as postgresql://host/name")
        }
        // The connection string is the value of `dbname`: its settings override those before it.
        let parameters = [
            ("connect_timeout", "5"), ("keepalives_idle", "10"), ("keepalives_interval", "5"),
            ("keepalives_count", "3"),
            ("tcp_user_timeout", "20000"), ("dbname", configuration.url), ("client_encoding", "UTF8"),
            ("fallback_application_name", "holdfast"),
        ]
        var names: [UnsafeMutablePointer<CChar>?] = parameters.map { strdup($0.0) } + [nil]
        var values: [UnsafeMutablePointer<CChar>?] = parameters.map { strdup($0.1) } + [nil]
        defer { for text in names + values { free(text) } }
        let pointer = names.withUnsafeMutableBufferPointer { names in
            values.withUnsafeMutableBufferPointer { values in
                names.withMemoryRebound(to: UnsafePointer<CChar>?.self) { names in
                    values.withMemoryRebound(to: UnsafePointer<CChar>?.self) { values in
                        PQconnectdbParams(names.baseAddress, values.baseAddress, 1)
                    }
                }
            }
        }
        guard let pointer else { throw PostgreSQLError(connection: "no memory is left") }
        let handle = Handle(pointer)
        guard PQstatus(pointer) == CONNECTION_OK else {
            throw PostgreSQLError(connection: PostgreSQLError.line(String(cString: PQerrorMessage(pointer))))
        }
        cpostgresql_ignore_notices(pointer)
        if !configuration.usesPooler, try !handle.reachesBackend { configuration.foundPooler() }
        guard !configuration.usesPooler else { return handle }
        // The client's own time-out is shorter. These limits end what it has left running. Behind a pooler they would
        // also apply to other clients.
        let milliseconds = Int(configuration.statementTimeout * 1_000)
        try handle.execute(
            """
            SET statement_timeout = \(milliseconds * 2); SET lock_timeout = \(milliseconds);
            SET idle_in_transaction_session_timeout = \(milliseconds * 2)
            """)
        return handle
    }
}

extension Handle {
    /// Whether the process that serves the connection is the one that the connection was opened to; not so behind a
    /// pooler.
    fileprivate var reachesBackend: Bool {
        get throws(PostgreSQLError) {
            try execute("SELECT pg_backend_pid()").first?.first == String(PQbackendPID(pointer))
        }
    }

    /// Executes statements and blocks until done; before the connection is in pipeline mode.
    ///
    /// - Returns: the rows of the last one, in text format.
    @discardableResult
    func execute(_ sql: String) throws(PostgreSQLError) -> [[String?]] {
        guard let result = PQexec(pointer, sql) else { throw PostgreSQLError(connection: "no memory is left") }
        defer { PQclear(result) }
        guard [PGRES_COMMAND_OK, PGRES_TUPLES_OK].contains(PQresultStatus(result)) else {
            throw PostgreSQLError(result)
        }
        return (0..<PQntuples(result)).map { row in
            (0..<PQnfields(result)).map { column in
                PQgetisnull(result, row, column) == 1 ? nil : String(cString: PQgetvalue(result, row, column))
            }
        }
    }
}

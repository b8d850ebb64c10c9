import CPostgreSQL
import Dispatch
import Glibc
import Synchronization

/// A connection of libpq, which one thread at a time uses.
final class Handle: @unchecked Sendable {
    // Safe: the connector hands it over to the executor of a session.
    let pointer: OpaquePointer

    fileprivate init(_ pointer: OpaquePointer) {
        self.pointer = pointer
    }

    deinit {
        PQfinish(pointer)
    }
}

/// Makes connections on threads of its own: resolving names, a handshake of TLS and the key derivation of SCRAM would block
/// an event loop.
///
/// It uses libpq's blocking interface, because only that obeys `connect_timeout`: with several hosts in the connection
/// string, one that does not respond must not keep it from the next.
final class Connector: Sendable {
    private let configuration: PostgreSQLConfiguration
    /// So many connections are made at once.
    private let lanes = (0..<8).map { DispatchQueue(label: "postgresql-connector-\($0)", qos: .userInitiated) }
    private let next = Atomic<Int>(0)

    init(_ configuration: PostgreSQLConfiguration) {
        self.configuration = configuration
    }

    /// - Parameter completion: called on another thread.
    func connect(_ completion: @escaping @Sendable (Result<Handle, PostgreSQLError>) -> Void) {
        let lane = next.wrappingAdd(1, ordering: .relaxed).newValue
        lanes[Int(lane.magnitude % UInt(lanes.count))].async { [self] in
            completion(Result { () throws(PostgreSQLError) in try connect() })
        }
    }

    /// Connects and blocks until done.
    func connect() throws(PostgreSQLError) -> Handle {
        let handle = try Self.open(configuration)
        guard PQsetnonblocking(handle.pointer, 1) == 0, PQenterPipelineMode(handle.pointer) == 1 else {
            throw PostgreSQLError(connection: "libpq cannot use its pipeline mode")
        }
        return handle
    }

    /// A connection whose calls block, for the start.
    static func open(_ configuration: PostgreSQLConfiguration) throws(PostgreSQLError) -> Handle {
        guard ConnectionString(configuration.url).isWellFormed else {
            // libpq's message would repeat it with the password.
            throw PostgreSQLError(connection: "it must be a connection string of libpq, such as postgresql://host/name")
        }
        // What comes first is overridden by the connection string, which stands for `dbname`.
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
        guard !configuration.isPooled else { return handle }
        // The client gives up first; these end what it has left behind. Behind a pooler they would be other clients', too.
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

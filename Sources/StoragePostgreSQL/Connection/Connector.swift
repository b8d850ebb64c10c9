import CPostgreSQL
import Dispatch
import Glibc
import Synchronization

/// Opens connections on its own threads: name resolution, the TLS handshake and SCRAM's key derivation would block an
/// event loop.
///
/// It uses libpq's blocking interface, because only that one applies `connect_timeout`. It tries the hosts of a
/// connection string itself, in the order of the ``Cluster``: libpq would begin with the first host each time, and
/// accept a former primary that another one has replaced.
final class Connector: Sendable {
    private let configuration: PostgreSQLConfiguration
    /// The threads. Their number limits how many connections are opened at the same time.
    private let queues = (0..<8).map { DispatchQueue(label: "postgresql-connector-\($0)", qos: .userInitiated) }
    /// Counts connections, to distribute them over the queues.
    private let next = Atomic<Int>(0)

    init(_ configuration: PostgreSQLConfiguration) {
        self.configuration = configuration
    }

    /// Connects on another thread.
    ///
    /// - Parameters:
    ///   - lockTimeout: how long a statement may wait for a lock, in seconds.
    ///   - listens: whether to listen for changes of projects, if the server can notify.
    ///   - completion: called on that thread.
    func connect(
        lockTimeout: Double, listens: Bool, _ completion: @escaping @Sendable (Result<Handle, PostgreSQLError>) -> Void
    ) {
        let number = next.wrappingAdd(1, ordering: .relaxed).newValue
        queues[Int(number.magnitude % UInt(queues.count))].async { [self] in
            completion(Result { () throws(PostgreSQLError) in try connect(lockTimeout: lockTimeout, listens) })
        }
    }

    /// Makes prepared statements keep a plan that finds rows by their keys.
    ///
    /// - `plan_cache_mode`: by default PostgreSQL plans a statement again at each execution as long as it estimates
    ///   that to be cheaper. For lookups of few users it always does, which doubles their cost.
    /// - `enable_seqscan`: a plan that was made for a small table reads the whole table, even after an import has
    ///   filled it, until the table is analyzed. Without sequential scans the plan uses the key.
    /// - `jit`: statements that must read a whole table still do, but at an estimated cost so high that PostgreSQL
    ///   would compile them.
    ///
    /// Not with Citus, which needs the values to plan a statement, and whose nodes plan by themselves.
    private static let planning = """
        SELECT set_config(name, value, false)
        FROM (VALUES ('plan_cache_mode', 'force_generic_plan'), ('enable_seqscan', 'off'), ('jit', 'off'))
            AS settings (name, value)
        WHERE NOT EXISTS (SELECT FROM pg_extension WHERE extname = 'citus')
        """

    /// Connects and blocks until done.
    private func connect(lockTimeout: Double, _ listens: Bool) throws(PostgreSQLError) -> Handle {
        let handle = try Self.open(configuration)
        // Behind a pooler statements are planned each time.
        if !configuration.usesPooler {
            let limit = "SET lock_timeout = \(PostgreSQLConfiguration.milliseconds(lockTimeout))"
            for statement in [Self.planning, limit] {
                try handle.query(statement, within: Self.patience(configuration))
            }
            if listens { try handle.listenIfPossible(within: Self.patience(configuration)) }
        }
        guard PQsetnonblocking(handle.pointer, 1) == 0, PQenterPipelineMode(handle.pointer) == 1 else {
            throw PostgreSQLError(connection: "libpq cannot use its pipeline mode")
        }
        return handle
    }

    /// Opens a connection in blocking mode, for the start of the store, commands and listeners: to the first server
    /// that accepts it and was not left behind.
    static func open(_ configuration: PostgreSQLConfiguration) throws(PostgreSQLError) -> Handle {
        let string = ConnectionString(configuration.url)
        guard string.isWellFormed else {
            // libpq's message would contain the string with its password.
            throw PostgreSQLError(connection: "it must be a connection string of libpq, such as postgresql://host/name")
        }
        let hosts = string.hosts
        let cluster = configuration.cluster
        var failures: [String] = []
        var triedAt: [Int: UInt64] = [:]
        /// Returns the next host to try: one that was not tried yet, or one that has become the primary since it was
        /// tried.
        func next() -> Int? {
            cluster.order(of: hosts.count).first { number in
                triedAt[number].map { failures.count < 2 * hosts.count && cluster.isPrimary(number, since: $0) } ?? true
            }
        }
        while let number = next() {
            triedAt[number] = DispatchTime.now().uptimeNanoseconds
            do throws(PostgreSQLError) {
                let handle = try open(configuration, hosts[number], number)
                guard !cluster.hasLeftBehind(handle.timeline) else { throw .leftBehind }
                cluster.didConnect(to: number)
                return handle
            } catch {
                guard hosts.count > 1 else { throw error }
                cluster.didLose(number)
                failures.append(error.message)
            }
        }
        throw PostgreSQLError(connection: failures.joined(separator: "; "))
    }

    /// How long a server may take for each step of making a connection, in seconds. Short, because a server may be gone
    /// without an error, and lookups fail until this or another one responds.
    private static func patience(_ configuration: PostgreSQLConfiguration) -> Double {
        ConnectionString(configuration.url).hosts.count > 1 ? 2 : 3
    }

    /// The same for connections that do not serve requests (watches and listeners), and for responses on them.
    static let watchPatience = 2.0

    /// Opens a connection to one server.
    ///
    /// - Parameter forWatch: whether to accept a server of any role; otherwise it must have the role that the
    ///   connection string demands (`target_session_attrs`).
    static func open(
        _ configuration: PostgreSQLConfiguration, _ host: ConnectionString.Host, _ number: Int, forWatch: Bool = false
    ) throws(PostgreSQLError) -> Handle {
        let patience = forWatch ? watchPatience : Self.patience(configuration)
        let waitsForever = ConnectionString(configuration.url).waitsForever
        // The connection string is the value of `dbname`. Later settings override earlier ones: those before it are
        // defaults, and those after it cannot be changed by the string.
        let parameters =
            [
                ("connect_timeout", "\(Int(patience))"), ("keepalives_idle", "5"), ("keepalives_interval", "2"),
                ("keepalives_count", "2"), ("tcp_user_timeout", "4000"), ("dbname", configuration.url),
                ("client_encoding", "UTF8"),
                ("fallback_application_name", "holdfast"),
            ] + host.settings + (forWatch ? [("target_session_attrs", "any")] : [])
            + (forWatch || waitsForever ? [("connect_timeout", "\(Int(patience))")] : [])
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
        let handle = Handle(pointer, host: number)
        guard PQstatus(pointer) == CONNECTION_OK else {
            throw PostgreSQLError(connection: PostgreSQLError.line(String(cString: PQerrorMessage(pointer))))
        }
        try handle.inspect(configuration, within: patience)
        guard !configuration.usesPooler else { return handle }
        // The client's own time-out is shorter. These limits end statements and transactions that the client has given
        // up. Behind a pooler they would also apply to other clients.
        let milliseconds = PostgreSQLConfiguration.milliseconds(configuration.statementTimeout)
        try handle.query(
            """
            SET statement_timeout = \(milliseconds * 2); SET lock_timeout = \(milliseconds);
            SET idle_in_transaction_session_timeout = \(milliseconds * 2)
            """, within: patience)
        return handle
    }
}

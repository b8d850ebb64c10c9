import CPostgreSQL
import Dispatch
import Glibc
import Synchronization

/// Opens connections on its own threads: name resolution, the TLS handshake and SCRAM's key derivation would block an
/// event loop.
///
/// The connector uses libpq's blocking interface, because only the blocking one applies `connect_timeout`. It tries the
/// hosts of a connection string itself, in the order of the ``Cluster``. libpq would begin with the first host each
/// time, and would accept a former primary that was replaced.
final class Connector: Sendable {
    private let configuration: PostgreSQLConfiguration
    /// The maximum number of connections that are opened at the same time.
    private static let concurrency = 8
    /// A queue for each connection that is opened at the same time.
    private let queues = (0..<concurrency).map {
        DispatchQueue(label: "postgresql-connector-\($0)", qos: .userInitiated)
    }
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

    /// Sets how PostgreSQL plans prepared statements: a statement keeps a plan that finds rows by their keys.
    ///
    /// - `plan_cache_mode`: by default PostgreSQL plans a statement again at each execution if it estimates the new
    ///   plan to be cheaper. For lookups of few users it always does, which doubles their cost.
    /// - `enable_seqscan`: a plan that was made for a small table reads the whole table, even after an import has
    ///   filled it, until the table is analyzed. Without sequential scans the plan uses the key.
    /// - `jit`: statements that must read a whole table still do, but at an estimated cost so high that PostgreSQL
    ///   would compile them.
    ///
    /// Not set with Citus, which needs the values to plan a statement, and whose nodes plan by themselves.
    private static let planning = """
        SELECT set_config(name, value, false)
        FROM (VALUES ('plan_cache_mode', 'force_generic_plan'), ('enable_seqscan', 'off'), ('jit', 'off'))
            AS settings (name, value)
        WHERE NOT EXISTS (SELECT FROM pg_extension WHERE extname = 'citus')
        """

    /// Opens a connection, applies the settings of the session, and enters pipeline mode. Blocks until done.
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

    /// Opens a connection in blocking mode, to the first server that accepts it and was not replaced by another
    /// primary. Used directly at the start of the store, by commands, and by listeners.
    ///
    /// - Throws: the errors of all servers that were tried.
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
        /// Returns the next host to try: a host that was not tried yet, or one that has become the primary since it was
        /// tried. The second case occurs if there is a failover during the attempts. No host is tried again once there
        /// were twice as many failures as hosts.
        func next() -> Int? {
            let mayRepeat = failures.count < 2 * hosts.count
            return cluster.order(of: hosts.count).first { number in
                guard let time = triedAt[number] else { return true }
                return mayRepeat && cluster.isPrimary(number, since: time)
            }
        }
        while let number = next() {
            triedAt[number] = DispatchTime.now().uptimeNanoseconds
            do throws(PostgreSQLError) {
                let handle = try openHost(hosts[number], number, configuration)
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

    /// Returns how long a server may take for each step of opening a connection, in seconds. Short, because a server
    /// may be gone without an error, and lookups fail until this or another server responds.
    private static func patience(_ configuration: PostgreSQLConfiguration) -> Double {
        ConnectionString(configuration.url).hosts.count > 1 ? 2 : 3
    }

    /// How long a server may take to open a connection of a watch or listener, and to respond on it, in seconds.
    static let watchPatience = 2.0

    /// Opens a connection to one server.
    ///
    /// - Parameters:
    ///   - number: the index of the server in the connection string.
    ///   - forWatch: whether to accept a server of any role. Otherwise the server must have the role that the
    ///     connection string demands (`target_session_attrs`).
    static func openHost(
        _ host: ConnectionString.Host, _ number: Int, _ configuration: PostgreSQLConfiguration, forWatch: Bool = false
    ) throws(PostgreSQLError) -> Handle {
        let patience = forWatch ? watchPatience : Self.patience(configuration)
        let waitsForever = ConnectionString(configuration.url).waitsForever
        // The connection string is the value of `dbname`. Later settings override earlier ones, so settings before
        // `dbname` are defaults, and the string cannot change settings after `dbname`. All times are in seconds, except
        // `tcp_user_timeout`, which is in milliseconds.
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
        // These limits end statements and transactions that this client has given up, after its own, shorter time-out.
        // Behind a pooler the limits would also apply to other clients.
        let milliseconds = PostgreSQLConfiguration.milliseconds(configuration.statementTimeout)
        try handle.query(
            """
            SET statement_timeout = \(milliseconds * 2); SET lock_timeout = \(milliseconds);
            SET idle_in_transaction_session_timeout = \(milliseconds * 2)
            """, within: patience)
        return handle
    }
}

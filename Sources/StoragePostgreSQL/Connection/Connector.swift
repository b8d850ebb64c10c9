import CPostgreSQL
import Dispatch
import Glibc
import Synchronization

/// Owns a connection of libpq, which only one thread at a time may use.
final class Handle: @unchecked Sendable {
    // Safe: the connector passes it to the executor of one session, and keeps no reference.
    let pointer: OpaquePointer
    /// The number of its server among those of the connection string.
    let host: Int
    /// `nil` if the server has no timeline that can be compared: a standby, or one behind a pooler.
    fileprivate(set) var timeline: Cluster.Timeline?
    /// Whether it accepts writes, as far as it tells.
    fileprivate(set) var isPrimary = false
    private let lastWarning = UnsafeMutablePointer<cpostgresql_warning>.allocate(capacity: 1)

    fileprivate init(_ pointer: OpaquePointer, host: Int) {
        self.pointer = pointer
        self.host = host
        cpostgresql_clear(lastWarning)
        cpostgresql_keep_warnings(pointer, lastWarning)
    }

    deinit {
        PQfinish(pointer)
        lastWarning.deallocate()
    }

    /// The last warning of the server since ``forgetWarning()``.
    var warning: String? {
        let text = String(cString: cpostgresql_text(lastWarning))
        return text.isEmpty ? nil : text
    }

    func forgetWarning() {
        cpostgresql_clear(lastWarning)
    }
}

/// Opens connections on its own threads: name resolution, the TLS handshake and SCRAM's key derivation would block an
/// event loop.
///
/// It uses libpq's blocking interface, because only that one applies `connect_timeout`. It tries the hosts of a connection
/// string itself: libpq would begin with the first one each time, and take a primary that was left behind.
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

    /// Opens a connection in blocking mode, for the start of the store, commands and listeners: to the first server that
    /// accepts it and was not left behind.
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
        /// What is known of the servers may change while one of them is tried, and one that was refused may become the
        /// primary.
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

    /// How long a server may take for a step of making a connection, in seconds. One may be gone without a word; lookups
    /// must not have failed for long when it, or another one, is there again.
    private static func patience(_ configuration: PostgreSQLConfiguration) -> Double {
        ConnectionString(configuration.url).hosts.count > 1 ? 2 : 3
    }

    /// The same for a connection that is not for users, and for its responses.
    static let watchPatience = 2.0

    /// Opens a connection to one server.
    ///
    /// - Parameter forWatch: whether to look at the server, whatever it is; otherwise it must be as the connection string
    ///   demands.
    static func open(
        _ configuration: PostgreSQLConfiguration, _ host: ConnectionString.Host, _ number: Int, forWatch: Bool = false
    ) throws(PostgreSQLError) -> Handle {
        let patience = forWatch ? watchPatience : Self.patience(configuration)
        let waitsForever = ConnectionString(configuration.url).waitsForever
        // The connection string is the value of `dbname`: its settings override those before it, as those after it do.
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
        // The client's own time-out is shorter. These limits end what it has left running. Behind a pooler they would
        // also apply to other clients.
        let milliseconds = PostgreSQLConfiguration.milliseconds(configuration.statementTimeout)
        try handle.query(
            """
            SET statement_timeout = \(milliseconds * 2); SET lock_timeout = \(milliseconds);
            SET idle_in_transaction_session_timeout = \(milliseconds * 2)
            """, within: patience)
        return handle
    }
}

extension Handle {
    /// Asks the server what it is, and notes it in the ``Cluster``. A server whose functions are restricted tells less.
    ///
    /// - Parameter seconds: how long it may take.
    func inspect(_ configuration: PostgreSQLConfiguration, within seconds: Double) throws(PostgreSQLError) {
        guard let row = try inspection(within: seconds) else { return }
        // Behind a pooler another process serves the connection than the one that it was opened to.
        if !configuration.usesPooler, row[0] != String(PQbackendPID(pointer)) { configuration.foundPooler() }
        isPrimary = row.count == 4 && row[3] != nil
        guard isPrimary else { return }
        timeline = nil
        if !configuration.usesPooler, let systemID = row[1], let file = row[2],
            let number = Int(file.prefix(8), radix: 16)
        {
            timeline = Cluster.Timeline(systemID: systemID, number: number)
        }
        configuration.cluster.didSee(timeline, isSynchronous: row[3] == "t")
    }

    /// A standby refuses.
    func listenIfPossible(within seconds: Double) throws(PostgreSQLError) {
        do throws(PostgreSQLError) {
            try query(ProjectStateRow.listen, within: seconds)
        } catch {
            guard !error.state.isEmpty else { throw error }
        }
    }

    /// - Returns: whether the server has sent any.
    func takeNotifications() -> Bool {
        var isNotified = false
        while let notification = PQnotifies(pointer) {
            PQfreemem(notification)
            isNotified = true
        }
        return isNotified
    }

    private func inspection(within seconds: Double) throws(PostgreSQLError) -> [String?]? {
        do throws(PostgreSQLError) {
            return try query(Self.inspection, within: seconds).first
        } catch {
            guard !error.state.isEmpty else { throw error }
            return try query("SELECT pg_backend_pid()", within: seconds).first
        }
    }

    /// The name of a file of the write-ahead log begins with its timeline. A standby returns NULL at the end.
    private static let inspection = """
        SELECT pg_backend_pid(), (SELECT system_identifier FROM pg_control_system()),
            CASE WHEN NOT pg_is_in_recovery() THEN pg_walfile_name(pg_current_wal_lsn()) END,
            CASE WHEN NOT pg_is_in_recovery() THEN current_setting('synchronous_standby_names') <> ''
                AND current_setting('synchronous_commit') NOT IN ('off', 'local') END
        """

    /// Executes statements like ``execute(_:)``, and gives up after a time.
    @discardableResult
    func query(_ sql: String, within seconds: Double) throws(PostgreSQLError) -> [[String?]] {
        guard PQsendQuery(pointer, sql) == 1 else { throw lastError }
        let end = DispatchTime.now() + seconds
        var rows: [[String?]] = []
        var failure: PostgreSQLError?
        while true {
            while PQisBusy(pointer) == 1 {
                let left = Int64(bitPattern: end.uptimeNanoseconds &- DispatchTime.now().uptimeNanoseconds) / 1_000_000
                guard left > 0 else {
                    throw PostgreSQLError(connection: "it has not responded within \(seconds) seconds")
                }
                var descriptor = pollfd(fd: PQsocket(pointer), events: Int16(POLLIN), revents: 0)
                guard poll(&descriptor, 1, Int32(clamping: left)) <= 0 || PQconsumeInput(pointer) == 1 else {
                    throw lastError
                }
            }
            guard let result = PQgetResult(pointer) else { break }
            defer { PQclear(result) }
            switch PQresultStatus(result) {
            case PGRES_COMMAND_OK, PGRES_TUPLES_OK: rows = Self.rows(result)
            default: failure = failure ?? PostgreSQLError(result)
            }
        }
        if let failure { throw failure }
        return rows
    }

    private var lastError: PostgreSQLError {
        PostgreSQLError(connection: PostgreSQLError.line(String(cString: PQerrorMessage(pointer))))
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
        return Self.rows(result)
    }

    private static func rows(_ result: OpaquePointer) -> [[String?]] {
        (0..<PQntuples(result)).map { row in
            (0..<PQnfields(result)).map { column in
                PQgetisnull(result, row, column) == 1 ? nil : String(cString: PQgetvalue(result, row, column))
            }
        }
    }
}

import CPostgreSQL
import Dispatch
import Glibc

/// Owns a connection of libpq, which only one thread at a time may use.
///
/// All methods block. They are used before a ``Connection`` takes the handle over, by commands, and by ``ClusterWatch``
/// and ``ChangeListener``, which have threads of their own.
final class Handle: @unchecked Sendable {
    // Safe: the connector passes it to the executor of one session, and keeps no reference.
    let pointer: OpaquePointer
    /// The index of the server in the connection string.
    let host: Int
    /// The timeline of the server; `nil` if it cannot be compared, because the server is a standby or behind a pooler.
    fileprivate(set) var timeline: Cluster.Timeline?
    /// Whether the server accepts writes, as far as it tells.
    fileprivate(set) var isPrimary = false
    /// The last warning; libpq's callback writes it.
    private let lastWarning = UnsafeMutablePointer<cpostgresql_warning>.allocate(capacity: 1)

    init(_ pointer: OpaquePointer, host: Int) {
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

extension Handle {
    /// Asks the server for its role, its timeline, and whether commits wait for a standby. Notes the response in the
    /// ``Cluster``. If the database role lacks the rights for this query, the server counts as a standby.
    ///
    /// - Parameter seconds: how long the server may take.
    /// - Throws: an error if the server does not respond in time.
    func inspect(_ configuration: PostgreSQLConfiguration, within seconds: Double) throws(PostgreSQLError) {
        guard let row = try inspection(within: seconds) else { return }
        // A pooler gives its clients another process id than that of the backend that serves the query.
        if !configuration.usesPooler, row[0] != String(PQbackendPID(pointer)) { configuration.foundPooler() }
        isPrimary = row.count == 4 && row[3] != nil
        guard isPrimary else { return }
        timeline = nil
        // The name of a log file begins with the timeline, in eight hexadecimal digits.
        if !configuration.usesPooler, let systemID = row[1], let file = row[2],
            let number = Int(file.prefix(8), radix: 16)
        {
            timeline = Cluster.Timeline(systemID: systemID, number: number)
        }
        configuration.cluster.didSee(timeline, isSynchronous: row[3] == "t")
    }

    /// Listens for changes of projects, unless the server refuses, as a standby does.
    func listenIfPossible(within seconds: Double) throws(PostgreSQLError) {
        do throws(PostgreSQLError) {
            try query(ProjectStateRow.listen, within: seconds)
        } catch {
            // An empty state means that the connection failed. Otherwise the server has refused.
            guard !error.state.isEmpty else { throw error }
        }
    }

    /// Removes the notifications that have arrived.
    ///
    /// - Returns: whether there were any.
    func takeNotifications() -> Bool {
        var isNotified = false
        while let notification = PQnotifies(pointer) {
            PQfreemem(notification)
            isNotified = true
        }
        return isNotified
    }

    /// Runs the query of ``inspect(_:within:)``. If the server refuses the query, asks only for the process id.
    private func inspection(within seconds: Double) throws(PostgreSQLError) -> [String?]? {
        do throws(PostgreSQLError) {
            return try query(Self.inspection, within: seconds).first
        } catch {
            guard !error.state.isEmpty else { throw error }
            return try query("SELECT pg_backend_pid()", within: seconds).first
        }
    }

    /// Selects the process id of the backend, the system identifier, the name of a file of the write-ahead log, which
    /// begins with the timeline, and whether commits wait for a standby. The last two are NULL on a standby.
    private static let inspection = """
        SELECT pg_backend_pid(), (SELECT system_identifier FROM pg_control_system()),
            CASE WHEN NOT pg_is_in_recovery() THEN pg_walfile_name(pg_current_wal_lsn()) END,
            CASE WHEN NOT pg_is_in_recovery() THEN current_setting('synchronous_standby_names') <> ''
                AND current_setting('synchronous_commit') NOT IN ('off', 'local') END
        """

    /// Executes statements like ``execute(_:)``, but gives up after a number of seconds.
    ///
    /// - Throws: the first error of the server, or an error of the connection if the server does not respond in time.
    @discardableResult
    func query(_ sql: String, within seconds: Double) throws(PostgreSQLError) -> [[String?]] {
        guard PQsendQuery(pointer, sql) == 1 else { throw lastError }
        let end = DispatchTime.now() + seconds
        var rows: [[String?]] = []
        var failure: PostgreSQLError?
        while true {
            guard try waitForResult(until: end) else {
                throw PostgreSQLError(connection: "it has not responded within \(seconds) seconds")
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

    /// Blocks until `PQgetResult` would not block.
    ///
    /// - Returns: `false` if the time is over.
    private func waitForResult(until end: DispatchTime) throws(PostgreSQLError) -> Bool {
        while PQisBusy(pointer) == 1 {
            let left = Int64(bitPattern: end.uptimeNanoseconds &- DispatchTime.now().uptimeNanoseconds) / 1_000_000
            guard left > 0 else { return false }
            var descriptor = pollfd(fd: PQsocket(pointer), events: Int16(POLLIN), revents: 0)
            let hasInput = poll(&descriptor, 1, Int32(clamping: left)) > 0
            if hasInput, PQconsumeInput(pointer) != 1 { throw lastError }
        }
        return true
    }

    private var lastError: PostgreSQLError {
        PostgreSQLError(connection: PostgreSQLError.line(String(cString: PQerrorMessage(pointer))))
    }

    /// Executes statements and blocks until done; before the connection is in pipeline mode.
    ///
    /// - Returns: the rows of the last statement, in text format.
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

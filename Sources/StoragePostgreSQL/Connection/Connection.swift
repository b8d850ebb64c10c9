import CPostgreSQL
import Dispatch
import Storage

/// A connection to the database server that belongs to one executor. It never blocks: it sends exchanges in libpq's
/// pipeline mode, one after the other. After a failure it reconnects before the next exchange.
///
/// ```
/// run → waiting → sendNext: connect, or send        one exchange is in progress at a time
///       ready → receive → take … finish             results arrive; the Sync ends the exchange
///       tick: overdue and silent exchanges          lose: closes the connection; park: keeps it
/// ```
///
/// While a commit waits for a standby that is lost, the connection is *parked*: it stays open, and refuses exchanges.
/// If new connections took the place of parked ones, their commits would soon wait as well, until the server has no
/// connections left.
final class Connection: @unchecked Sendable {
    // Safe: used on its executor only.

    typealias Completion = (Result<[Rows], PostgreSQLError>) -> Void

    /// Statements that are sent together, followed by one Sync message. Either all succeed, or the exchange fails with
    /// the error of the first statement that has failed.
    private struct Exchange {
        let queries: [SQLQuery]
        /// When the exchange fails without a response, in monotonic nanoseconds.
        let deadline: UInt64
        /// Whether the exchange has nothing to commit, so that it never waits for a standby.
        var onlyReads = false
        let completion: Completion

        var commits: Bool { queries.contains { $0.name == Statement.commit.name } }
    }

    /// A result that the server sends for the current exchange.
    private enum Step {
        case prepare(name: String, sql: String)
        case query
    }

    private enum State {
        /// Not connected; the next exchange connects.
        case idle
        case connecting
        case open(Handle)
        case closed
    }

    private let executor: any StoreExecutor
    /// Opens connections on other threads.
    private let connector: Connector
    private let configuration: PostgreSQLConfiguration
    /// How long a statement may wait for a lock, in seconds.
    private let lockTimeout: Double
    /// Called after completions, which may have submitted more.
    private let didCallCompletions: () -> Void
    private var state = State.idle
    /// When the next attempt to connect may start.
    private var schedule = ReconnectSchedule()
    /// Calls `ready` at events of the socket; `nil` while there is no connection.
    private var watch: (any DescriptorWatch)?
    /// The texts of prepared statements, by their names.
    private var prepared: [String: String] = [:]
    /// The exchanges that were not sent yet.
    private var waiting: [Exchange] = []
    /// The exchange in progress.
    private var current: Exchange?
    /// The results that the exchange in progress gets, in order.
    private var steps: [Step] = []
    /// The index of the next result among ``steps``.
    private var nextStep = 0
    /// The rows of the exchange in progress so far.
    private var rows: [Rows] = []
    /// The first error of the exchange in progress.
    private var error: PostgreSQLError?
    /// Whether libpq has just reported the end of a step's results.
    private var endedStep = false
    /// Whether the exchange has failed, and a ROLLBACK was sent after it.
    private var isRollingBack = false
    /// Whether a call of `tick` is scheduled.
    private var isTicking = false
    /// Whether the owner has closed the connection, which ends with the last submitted exchange.
    private var closesWhenIdle = false
    /// Whether there was a connection before, so that the next one replaces it.
    private var wasConnected = false
    /// When the connection was parked, in monotonic nanoseconds; `nil` if it is not.
    private var parkedAt: UInt64?
    /// When the exchange in progress was sent, in monotonic nanoseconds.
    private var sentAt: UInt64 = 0
    /// When the response was found to be late, in monotonic nanoseconds; `nil` if it is not late.
    private var lateSince: UInt64?
    /// After this many nanoseconds a response counts as late, and the ``ClusterWatch`` asks what the backend does.
    private static let patience: UInt64 = 1_000_000_000
    /// Called when projects may have changed: with each notification, and with each new connection, because
    /// notifications may have been missed. `nil` if the connection need not listen.
    ///
    /// The server sends the notifications of earlier commits before the end of an exchange's responses
    /// (`ProcessNotifyInterrupt` in PostgreSQL's `postgres.c`), so this is called before the exchange's completion.
    var projectsChanged: (() -> Void)?
    /// Whether the owner keeps a transaction open between exchanges.
    var isInTransaction = false

    init(
        on executor: any StoreExecutor, _ connector: Connector, _ configuration: PostgreSQLConfiguration,
        lockTimeout: Double, didCallCompletions: @escaping () -> Void
    ) {
        self.executor = executor
        self.lockTimeout = lockTimeout
        self.connector = connector
        self.configuration = configuration
        self.didCallCompletions = didCallCompletions
    }

    deinit {
        watch?.cancel()
        if parkedAt != nil { configuration.cluster.didUnpark() }
        noteResponse()
    }

    /// Whether an exchange is in progress or waits.
    var isBusy: Bool { current != nil || !waiting.isEmpty }

    /// Sends statements after those submitted earlier.
    ///
    /// - Parameters:
    ///   - deadline: when the exchange fails without a response, in monotonic nanoseconds.
    ///   - onlyReads: whether the statements have nothing to commit. Otherwise a late commit may wait for a standby.
    ///   - completion: called with the rows of each statement, later or before the call returns.
    func run(
        _ queries: [SQLQuery], by deadline: UInt64, onlyReads: Bool = false, _ completion: @escaping Completion
    ) {
        if case .closed = state { return completion(.failure(PostgreSQLError(connection: "the session is closed"))) }
        guard parkedAt == nil else { return completion(.failure(Self.parked)) }
        waiting.append(Exchange(queries: queries, deadline: deadline, onlyReads: onlyReads, completion: completion))
        sendNext()
    }

    /// Closes the connection once the submitted exchanges are done.
    func close() {
        guard parkedAt == nil else { return abort() }
        closesWhenIdle = true
        if !isBusy { shutDown() }
    }

    /// Closes the connection at once.
    func abort() {
        closesWhenIdle = true
        lose(PostgreSQLError(connection: "the session is closed"))
    }

    private func shutDown() {
        watch?.cancel()
        watch = nil
        state = .closed
    }

    private var now: UInt64 { DispatchTime.now().uptimeNanoseconds }

    // MARK: Connecting

    private func connect() {
        guard schedule.mayConnect(at: now) else {
            let error = schedule.lastError ?? PostgreSQLError(connection: "it was lost")
            return failWaiting(error)
        }
        state = .connecting
        tickSoon()
        connector.connect(lockTimeout: lockTimeout, listens: projectsChanged != nil) { [self] result in
            executor.submit { self.connected(result) }
        }
    }

    /// Takes a new connection into use, or fails all exchanges that wait for it.
    private func connected(_ result: Result<Handle, PostgreSQLError>) {
        guard case .connecting = state else { return }
        do throws(PostgreSQLError) {
            let handle = try result.get()
            watch = try watch(handle)
            state = .open(handle)
            prepared = [:]
            schedule.succeeded()
            projectsChanged?()
            if wasConnected { configuration.cluster.didReconnect() }
            wasConnected = true
            if waiting.isEmpty, closesWhenIdle { shutDown() } else { sendNext() }
        } catch {
            state = .idle
            schedule.failed(error, at: now, jitter: .random(in: 0...1))
            failWaiting(error)
            if closesWhenIdle { shutDown() }
        }
        didCallCompletions()
    }

    private func watch(_ handle: Handle) throws(PostgreSQLError) -> any DescriptorWatch {
        do throws(StorageError) {
            return try executor.watch(PQsocket(handle.pointer)) { [weak self] in self?.ready() }
        } catch {
            throw PostgreSQLError(connection: error.description)
        }
    }

    // MARK: Sending

    /// Sends the next exchange if none is in progress. Connects first if there is no connection, or if its server was
    /// replaced by another primary.
    private func sendNext() {
        guard current == nil, let next = waiting.first else { return }
        switch state {
        case .idle: connect()
        // The exchange that began to connect may have failed meanwhile. The ticks have ended with it, so they are
        // started again for this exchange.
        case .connecting: tickSoon()
        case .closed: break
        case .open(let handle) where configuration.cluster.hasLeftBehind(handle.timeline):
            guard !isInTransaction else { return lose(.leftBehind) }
            watch?.cancel()
            watch = nil
            state = .idle
            connect()
        case .open(let handle):
            waiting.removeFirst()
            current = next
            sentAt = now
            tickSoon()
            send(next.queries, handle)
        }
    }

    private func send(_ queries: [SQLQuery], _ handle: Handle) {
        steps = []
        nextStep = 0
        rows = []
        error = nil
        endedStep = false
        handle.forgetWarning()
        for query in queries {
            guard send(query, handle) else { return lose(lastError(handle)) }
        }
        guard PQpipelineSync(handle.pointer) == 1 else { return lose(lastError(handle)) }
        flush(handle)
    }

    /// Sends a statement, after its preparation if this connection has not prepared it. Behind a pooler nothing is
    /// prepared.
    ///
    /// - Returns: `false` if the connection failed.
    private func send(_ query: SQLQuery, _ handle: Handle) -> Bool {
        let parameters = query.parameters.map { Parameter($0) }
        let count = Int32(parameters.count)
        let types = parameters.map { Oid($0.type) }
        let isPooled = configuration.usesPooler
        if !isPooled {
            if let known = prepared[query.name] ?? preparing(query.name) {
                assert(known == query.sql, "two statements are called \(query.name)")
            } else {
                let sql = query.sql
                guard PQsendPrepare(handle.pointer, query.name, sql, count, types) == 1 else { return false }
                steps.append(.prepare(name: query.name, sql: sql))
            }
        }
        steps.append(.query)
        return Parameter.withValues(parameters) { values, lengths in
            // 1 is the binary format.
            let formats = [Int32](repeating: 1, count: Int(count))
            return isPooled
                ? PQsendQueryParams(handle.pointer, query.sql, count, types, values, lengths, formats, 1) == 1
                : PQsendQueryPrepared(handle.pointer, query.name, count, values, lengths, formats, 1) == 1
        }
    }

    /// Returns the text of a statement that the exchange in progress prepares.
    private func preparing(_ name: String) -> String? {
        for case .prepare(name, let sql) in steps { return sql }
        return nil
    }

    private func flush(_ handle: Handle) {
        switch PQflush(handle.pointer) {
        case 0: watch?.awaitsWriting = false
        case 1: watch?.awaitsWriting = true
        default: lose(lastError(handle))
        }
    }

    // MARK: Receiving

    /// Handles an event of the socket.
    private func ready() {
        guard case .open(let handle) = state else { return }
        guard PQconsumeInput(handle.pointer) == 1 else {
            receive(handle)
            lose(error ?? lastError(handle))
            return didCallCompletions()
        }
        takeNotifications(handle)
        if watch?.awaitsWriting == true { flush(handle) }
        receive(handle)
        if case .open(let open) = state, open === handle, PQstatus(handle.pointer) == CONNECTION_BAD {
            lose(error ?? lastError(handle))
        }
        didCallCompletions()
    }

    /// Takes the results that have arrived.
    private func receive(_ handle: Handle) {
        while current != nil, PQisBusy(handle.pointer) == 0 {
            guard let result = PQgetResult(handle.pointer) else {
                // The end of a statement's results. A second one without a result in between means that libpq expects
                // no more, although the exchange is not complete.
                guard !endedStep, PQstatus(handle.pointer) == CONNECTION_OK else { return lose(lastError(handle)) }
                endedStep = true
                nextStep += 1
                continue
            }
            endedStep = false
            guard take(result, handle) else { return }
        }
    }

    private func takeNotifications(_ handle: Handle) {
        if handle.takeNotifications() { projectsChanged?() }
    }

    /// Takes a result of the exchange in progress.
    ///
    /// - Returns: whether to read further results.
    private func take(_ result: OpaquePointer, _ handle: Handle) -> Bool {
        switch PQresultStatus(result) {
        case PGRES_PIPELINE_SYNC:
            PQclear(result)
            takeNotifications(handle)
            finish(handle)
            return true
        case PGRES_TUPLES_OK, PGRES_COMMAND_OK:
            guard nextStep < steps.count else { break }
            switch steps[nextStep] {
            case .prepare(let name, let sql): prepared[name] = sql
            case .query:
                rows.append(Rows(result))
                return true
            }
        case PGRES_PIPELINE_ABORTED: break
        default:
            // The first error is the cause. A failing COMMIT can be the only one.
            if error == nil { error = PostgreSQLError(result) }
        }
        PQclear(result)
        return true
    }

    /// Ends the exchange in progress, whose results have been received up to the Sync.
    private func finish(_ handle: Handle) {
        let status = PQtransactionStatus(handle.pointer)
        let isUnexpectedlyOpen = status == PQTRANS_INTRANS && !isInTransaction
        if status == PQTRANS_INERROR || isUnexpectedlyOpen {
            // If even the ROLLBACK did not end the transaction, the connection is not usable.
            guard !isRollingBack else { return lose(error ?? lastError(handle)) }
            // A failed transaction skipped its COMMIT. The error stays for the completion.
            isRollingBack = true
            isInTransaction = false
            let cause = error ?? PostgreSQLError(connection: "a transaction did not end")
            send([Statement.rollback()], handle)
            error = cause
            return
        }
        isRollingBack = false
        // The server was replaced during the exchange: its data may be stale, and its commits may be lost.
        guard !configuration.cluster.hasLeftBehind(handle.timeline) else { return lose(.leftBehind) }
        // A commit that succeeds with a warning may be lost: the wait for the standby was cancelled, or a node of a
        // distributed database has not confirmed the commit.
        if error == nil, let warning = handle.warning, current?.commits == true { error = .inDoubt(warning) }
        if let error, PoolerDetection.states.contains(error.state) { configuration.foundPooler() }
        let result: Result<[Rows], PostgreSQLError> = error.map { .failure($0) } ?? .success(rows)
        // An error of one node of a distributed database does not mean that this connection failed.
        if case .failure(let error) = result, error.remedy == .reconnect, !error.mayConcernOneNode {
            return lose(error)
        }
        complete(result)
        if !isBusy, closesWhenIdle { return shutDown() }
        sendNext()
    }

    /// Reports the result of the exchange in progress.
    private func complete(_ result: Result<[Rows], PostgreSQLError>) {
        guard let exchange = current else { return }
        if parkedAt != nil { configuration.cluster.didUnpark() }
        noteResponse()
        current = nil
        parkedAt = nil
        rows = []
        exchange.completion(result)
    }

    // MARK: Failing

    /// Returns libpq's last error of a connection.
    private func lastError(_ handle: Handle) -> PostgreSQLError {
        PostgreSQLError(connection: PostgreSQLError.line(String(cString: PQerrorMessage(handle.pointer))))
    }

    /// Closes the connection after a failure. Exchanges that have not been sent fail, too: otherwise they would wait
    /// for the reconnection.
    private func lose(_ error: PostgreSQLError) {
        if case .open(let handle) = state { configuration.cluster.didLose(handle.host) }
        watch?.cancel()
        watch = nil
        state = closesWhenIdle ? .closed : .idle
        isRollingBack = false
        isInTransaction = false
        steps = []
        complete(.failure(error))
        failWaiting(error)
    }

    /// Fails the exchanges that were not sent.
    private func failWaiting(_ error: PostgreSQLError) {
        let failed = waiting
        waiting = []
        for exchange in failed { exchange.completion(.failure(error)) }
    }

    /// The time between two ticks, in seconds.
    private static let tickInterval = 0.25

    /// Schedules the next tick. There are ticks only while there are exchanges.
    private func tickSoon() {
        guard !isTicking else { return }
        isTicking = true
        DispatchQueue.global().asyncAfter(deadline: .now() + Self.tickInterval) { [weak self] in
            guard let self else { return }
            executor.submit { self.tick() }
        }
    }

    /// Checks for exchanges that are overdue or get no response, and checks the state of a parked commit.
    private func tick() {
        isTicking = false
        guard isBusy else { return }
        tickSoon()
        let late = PostgreSQLError(
            connection: "it has not responded within \(configuration.statementTimeout) seconds")
        if let parkedAt { return examine(since: parkedAt, late) }
        if let current, now > current.deadline {
            // The server may still execute it, so nothing else must be sent on this connection.
            if current.onlyReads { lose(late) } else { park(late) }
            return didCallCompletions()
        }
        if case .open(let handle) = state, current != nil, let error = silence(of: handle) {
            lose(error)
            return didCallCompletions()
        }
        guard case .connecting = state else { return }
        let time = now
        let overdue = waiting.filter { time > $0.deadline }
        guard !overdue.isEmpty else { return }
        waiting.removeAll { time > $0.deadline }
        for exchange in overdue { exchange.completion(.failure(late)) }
        didCallCompletions()
    }

    // MARK: Connections that were cut without an error

    /// Returns why the exchange in progress will get no response; `nil` if a response may still come. There are two
    /// reasons: another server has become the primary, or the server responds to the ``ClusterWatch`` that its backend
    /// for this connection is idle or gone.
    private func silence(of handle: Handle) -> PostgreSQLError? {
        let cluster = configuration.cluster
        if cluster.hasLeftBehind(handle.timeline) { return .leftBehind }
        guard now &- sentAt > Self.patience else { return nil }
        guard let lateSince else {
            lateSince = now
            cluster.didBecomeLate()
            return nil
        }
        // Behind a pooler the backend is unknown.
        guard !configuration.usesPooler,
            case .isIdle = cluster.verdict(on: PQbackendPID(handle.pointer), of: handle.host, since: lateSince)
        else { return nil }
        return PostgreSQLError(connection: "the connection was cut without a word")
    }

    /// Ends the lateness of a response, because it has arrived or will not arrive any more.
    private func noteResponse() {
        guard lateSince != nil else { return }
        lateSince = nil
        configuration.cluster.didRespond()
    }

    // MARK: Commits that wait for a standby

    /// The error of exchanges that a parked connection refuses. The SQLSTATE is that of a cancelled statement, which
    /// the store reports as a database that took too long.
    private static let parked = PostgreSQLError(
        state: "57014", message: "an earlier change still waits for a synchronous standby")

    /// Fails the exchange in progress, but keeps the connection until its commit has ended. An exchange without
    /// statements takes its place, to receive the results.
    private func park(_ error: PostgreSQLError) {
        guard let exchange = current else { return }
        parkedAt = now
        noteResponse()
        configuration.cluster.didPark()
        current = Exchange(queries: [], deadline: .max) { _ in }
        exchange.completion(.failure(error))
        failWaiting(error)
    }

    /// Closes a parked connection unless its commit waits for a standby, or may wait for one.
    private func examine(since time: UInt64, _ error: PostgreSQLError) {
        guard case .open(let handle) = state else { return lose(error) }
        let cluster = configuration.cluster
        let backend = configuration.usesPooler ? nil : PQbackendPID(handle.pointer)
        // How long to wait for a finding of the watch, in nanoseconds: longer if the commit may wait for a standby. If
        // the watch gets no response, the server may have stopped, and another server may have become the primary.
        let longestDoubt: UInt64 = cluster.isSynchronous ? 10_000_000_000 : 2_000_000_000
        switch cluster.verdict(on: backend, of: handle.host, since: time) {
        case _ where cluster.hasLeftBehind(handle.timeline): lose(.leftBehind)
        case .waitsForStandby: return
        case .unknown where now &- time < longestDoubt: return
        case .unknown, .isBusy, .isIdle: lose(error)
        }
        didCallCompletions()
    }
}

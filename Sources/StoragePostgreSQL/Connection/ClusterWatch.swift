import Dispatch
import Storage
import Synchronization

/// Asks each server of the connection string at intervals for its timeline, and whether commits wait for a standby.
/// While responses are late, it also asks which backends (the server's processes for connections) are busy.
///
/// The watch has connections of its own for two reasons. First, a process whose connections are all idle would not
/// notice that another server has become the primary, and would read stale data from the former primary once the former
/// primary is back. Second, a connection that was cut without an error would be noticed only after the time-out of a
/// statement.
final class ClusterWatch: Sendable {
    private let hosts: [HostWatch]

    init(_ configuration: PostgreSQLConfiguration) {
        let hosts = ConnectionString(configuration.url).hosts
        self.hosts = hosts.indices.map { HostWatch(configuration, hosts[$0], number: $0, isOnly: hosts.count == 1) }
    }

    /// If there are several servers, blocks until each has been asked once, but for at most a second. The first
    /// connection then goes to the primary.
    func waitForFirst() {
        let deadline = DispatchTime.now() + 1
        for host in hosts { host.waitForFirst(until: deadline) }
    }

    func cancel() {
        for host in hosts { host.cancel() }
    }
}

/// Asks one server at intervals, and notes the responses in the ``Cluster``.
private final class HostWatch: @unchecked Sendable {
    // Safe: mutable state is used on the queue only.
    private let configuration: PostgreSQLConfiguration
    private let host: ConnectionString.Host
    /// The index of the server in the connection string.
    private let number: Int
    /// Whether the connection string has only this server.
    private let isOnly: Bool
    private let queue: DispatchQueue
    private let timer: any DispatchSourceTimer
    /// Left once the server was asked for the first time.
    private let first = DispatchGroup()
    private var isFirst = true
    /// How long a response may take, in seconds.
    private static let patience = Connector.watchPatience
    /// The connection; `nil` while there is none.
    private var handle: Handle?

    init(_ configuration: PostgreSQLConfiguration, _ host: ConnectionString.Host, number: Int, isOnly: Bool) {
        self.configuration = configuration
        self.host = host
        self.number = number
        self.isOnly = isOnly
        queue = DispatchQueue(label: "postgresql-watch-\(number)", qos: .utility)
        timer = DispatchSource.makeTimerSource(queue: queue)
        first.enter()
        // If there is only one server, the store's first connection inspects it anyway.
        timer.schedule(
            deadline: .now() + (isOnly ? configuration.watchInterval : 0), repeating: configuration.watchInterval)
        timer.setEventHandler { [weak self] in self?.ask() }
        timer.resume()
    }

    func waitForFirst(until deadline: DispatchTime) {
        if !isOnly { first.wait(before: deadline) }
    }

    func cancel() {
        timer.cancel()
        queue.async { [self] in handle = nil }
    }

    /// Asks the server for its role and, while responses are late, for its busy backends.
    private func ask() {
        defer {
            if isFirst { first.leave() }
            isFirst = false
        }
        do throws(PostgreSQLError) {
            let handle = try inspectedHandle()
            let askedAt = DispatchTime.now().uptimeNanoseconds
            let cluster = configuration.cluster
            cluster.didFind(handle.isPrimary ? .primary(handle.timeline) : .standby, at: number)
            guard cluster.hasLateConnections else { return }
            cluster.didFind(try busyBackends(handle), on: number, askedAt: askedAt)
        } catch {
            // The next call opens a new connection.
            handle = nil
            configuration.cluster.didFind(.unreachable, at: number)
        }
    }

    /// Returns the connection after it was inspected. Opening a connection inspects it, too.
    private func inspectedHandle() throws(PostgreSQLError) -> Handle {
        if let handle {
            try handle.inspect(configuration, within: Self.patience)
            return handle
        }
        let fresh = try Connector.openHost(host, number, configuration, forWatch: true)
        handle = fresh
        return fresh
    }

    /// Returns the backends that are not idle. The state of other roles' backends is NULL, so they count as busy.
    private func busyBackends(_ handle: Handle) throws(PostgreSQLError) -> Cluster.Backends {
        let notIdle = """
            SELECT pid, coalesce(wait_event = 'SyncRep', false) FROM pg_stat_activity
            WHERE state IS NULL OR state NOT LIKE 'idle%'
            """
        var backends = Cluster.Backends()
        for row in try handle.query(notIdle, within: Self.patience) {
            guard row.count == 2, let backend = row[0].flatMap({ Int32($0) }) else { continue }
            backends.busy.insert(backend)
            if row[1] == "t" { backends.awaitingStandby.insert(backend) }
        }
        return backends
    }
}

import Dispatch
import Storage
import Synchronization

/// Asks each server of the connection string at intervals for its timeline, whether commits wait for a standby, and which
/// do, over a connection of its own: otherwise a process whose connections are all idle would not notice that another
/// server became the primary, and read what is stale from one that comes back.
final class ClusterWatch: Sendable {
    private let hosts: [HostWatch]

    init(_ configuration: PostgreSQLConfiguration) {
        let hosts = ConnectionString(configuration.url).hosts
        self.hosts = hosts.indices.map { HostWatch(configuration, hosts[$0], number: $0, isOnly: hosts.count == 1) }
    }

    /// Blocks until each of several servers has been asked once, or for a second.
    func waitForFirst() {
        let deadline = DispatchTime.now() + 1
        for host in hosts { host.waitForFirst(until: deadline) }
    }

    func cancel() {
        for host in hosts { host.cancel() }
    }
}

/// Asks one server.
private final class HostWatch: @unchecked Sendable {
    // Safe: mutable state is used on the queue only.
    private let configuration: PostgreSQLConfiguration
    private let host: ConnectionString.Host
    private let number: Int
    private let isOnly: Bool
    private let queue: DispatchQueue
    private let timer: any DispatchSourceTimer
    private let first = DispatchGroup()
    private var isFirst = true
    /// How long the server may take for a response, in seconds.
    private static let patience = 2.0
    private var handle: Handle?

    init(_ configuration: PostgreSQLConfiguration, _ host: ConnectionString.Host, number: Int, isOnly: Bool) {
        self.configuration = configuration
        self.host = host
        self.number = number
        self.isOnly = isOnly
        queue = DispatchQueue(label: "postgresql-watch-\(number)", qos: .utility)
        timer = DispatchSource.makeTimerSource(queue: queue)
        first.enter()
        // The first connection to an only server tells as much.
        timer.schedule(
            deadline: .now() + (isOnly ? configuration.watchInterval : 0), repeating: configuration.watchInterval)
        timer.setEventHandler { [weak self] in self?.ask() }
        timer.resume()
    }

    func waitForFirst(until deadline: DispatchTime) {
        if !isOnly { _ = first.wait(timeout: deadline) }
    }

    func cancel() {
        timer.cancel()
        queue.async { [self] in handle = nil }
    }

    private func ask() {
        defer {
            if isFirst { first.leave() }
            isFirst = false
        }
        do throws(PostgreSQLError) {
            if let handle {
                try handle.inspect(configuration, within: Self.patience)
            } else {
                handle = try Connector.open(configuration, host, number, forWatch: true)
            }
            let askedAt = DispatchTime.now().uptimeNanoseconds
            guard let handle, configuration.cluster.parkedConnections > 0 else { return }
            let waiting = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
            let rows = try handle.query(waiting, within: Self.patience)
            let backends = Set(rows.compactMap { $0.first?.flatMap { Int32($0) } })
            configuration.cluster.didFind(waiting: backends, on: number, askedAt: askedAt)
        } catch {
            // The next one connects anew.
            handle = nil
        }
    }
}

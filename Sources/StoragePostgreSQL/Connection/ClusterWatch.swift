import Dispatch
import Storage
import Synchronization

/// Asks each server of the connection string at intervals for its timeline, whether commits wait for a standby, and, while
/// connections wait for responses, which backends are busy. It has a connection of its own: otherwise a process whose
/// connections are all idle would not notice that another server became the primary, and read what is stale from one that
/// comes back; and connections that were cut without a word would be noticed only after the time-out of a statement.
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
    private static let patience = Connector.watchPatience
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
        if !isOnly { first.wait(before: deadline) }
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
            guard let handle else { return }
            let cluster = configuration.cluster
            cluster.didFind(handle.isPrimary ? .primary(handle.timeline) : .standby, at: number)
            guard cluster.hasLateConnections else { return }
            // The state of others' backends is NULL.
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
            cluster.didFind(backends, on: number, askedAt: askedAt)
        } catch {
            // The next one connects anew.
            handle = nil
            configuration.cluster.didFind(.unreachable, at: number)
        }
    }
}

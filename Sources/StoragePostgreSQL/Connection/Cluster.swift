import Dispatch
import Storage
import Synchronization

/// The state of the servers in a store's connection string, shared by all connections of the store.
///
/// ``ClusterWatch`` and each new connection note what they find. Connections ask which server to try first, whether
/// their server was replaced by another primary, and what their backend (the server's process for a connection) does
/// while a response is late. A server is named by its index in the connection string (`host`).
final class Cluster: Sendable {
    /// The position of a server in the history of its cluster.
    ///
    /// A promoted standby begins a timeline with a greater number. So a primary with a lower number has been replaced:
    /// its data may be stale, and its commits are lost.
    struct Timeline: Equatable {
        /// The system identifier that `initdb` created. Timelines of different clusters cannot be compared.
        let systemID: String
        let number: Int
    }

    /// The state of a backend that has not responded in time.
    enum Verdict {
        /// The backend has committed, and waits for a synchronous standby.
        case waitsForStandby
        /// The backend still works on the exchange, as far as is known.
        case isBusy
        /// The backend is idle or gone. Either the exchange did not arrive, or its response was lost.
        case isIdle
        /// The backends of the server were not asked for since the response became late.
        case unknown
    }

    /// The backends of a server that are not idle.
    struct Backends {
        var busy: Set<Int32> = []
        /// The busy backends that wait for a synchronous standby.
        var awaitingStandby: Set<Int32> = []
    }

    /// The role of a server when it was last asked.
    enum Finding {
        /// The timeline is `nil` if it cannot be compared; see ``Handle/timeline``.
        case primary(Timeline?)
        case standby
        case unreachable
    }

    private struct State {
        /// The cluster of the greatest timeline number that was seen.
        var systemID: String?
        /// The host of the last successful connection.
        var lastGood = 0
        /// When a connection to each host was last lost or refused; no entry if a connection was made since. All times
        /// are in monotonic nanoseconds.
        var failedAt: [Int: UInt64] = [:]
        /// The role of each host, and when it was found.
        var findings: [Int: (what: Finding, at: UInt64)] = [:]
        /// The backends of each host, and when the query for them was sent.
        var backends: [Int: (found: Backends, askedAt: UInt64)] = [:]
    }

    private let state = Mutex(State())
    /// The greatest timeline number that was seen; 0 if none was.
    private let newest = Atomic<Int>(0)
    /// See ``isSynchronous``.
    private let synchronous = Atomic<Bool>(false)
    /// See ``parkedConnections``.
    private let parked = Atomic<Int>(0)
    /// The number of connections whose response is late.
    private let late = Atomic<Int>(0)
    /// See ``reconnects``.
    private let reconnections = Atomic<Int>(0)

    /// Whether commits wait for a standby, as the primary last reported.
    var isSynchronous: Bool { synchronous.load(ordering: .relaxed) }

    /// The number of connections that are parked: their backends have not confirmed a commit in time.
    var parkedConnections: Int { parked.load(ordering: .relaxed) }

    /// Whether a connection has waited for a response for so long that it may have been cut.
    var hasLateConnections: Bool { parkedConnections > 0 || late.load(ordering: .relaxed) > 0 }

    /// Notes that the response for a connection is late.
    func didBecomeLate() {
        late.add(1, ordering: .relaxed)
    }

    /// Notes that a late response has arrived, or that its connection is closed.
    func didRespond() {
        late.subtract(1, ordering: .relaxed)
    }

    /// The number of connections that replaced a lost one.
    var reconnects: Int { reconnections.load(ordering: .relaxed) }

    /// Notes a connection that replaces a lost one.
    func didReconnect() {
        reconnections.add(1, ordering: .relaxed)
    }

    /// Notes that a connection was parked.
    func didPark() {
        parked.add(1, ordering: .relaxed)
    }

    /// Notes that the commit of a parked connection has ended, or that the connection is closed.
    func didUnpark() {
        parked.subtract(1, ordering: .relaxed)
    }

    // MARK: Timelines

    /// The greatest timeline number that was seen; 0 if none was.
    var newestTimeline: Int { newest.load(ordering: .relaxed) }

    /// Notes the timeline of a primary, and whether its commits wait for a standby.
    func didSee(_ timeline: Timeline?, isSynchronous: Bool) {
        if let timeline {
            let isCurrent = state.withLock { state in
                // Another cluster may have replaced the former one, for example after an upgrade with pg_upgrade.
                if state.systemID != timeline.systemID || timeline.number > newest.load(ordering: .relaxed) {
                    state.systemID = timeline.systemID
                    newest.store(timeline.number, ordering: .relaxed)
                }
                return timeline.number >= newest.load(ordering: .relaxed)
            }
            guard isCurrent else { return }
        }
        synchronous.store(isSynchronous, ordering: .relaxed)
    }

    /// Whether a server on this timeline has been replaced by another primary. Cheap enough to check after each
    /// exchange.
    func hasLeftBehind(_ timeline: Timeline?) -> Bool {
        guard let timeline, timeline.number < newest.load(ordering: .relaxed) else { return false }
        return state.withLock { $0.systemID == timeline.systemID }
    }

    // MARK: Hosts

    /// Returns the hosts in the order in which to try them: first the host of the last connection, unless it has failed
    /// since; then known primaries; last the hosts that are known to be unreachable or replaced.
    func order(of hosts: Int) -> [Int] {
        let present = state.withLock { $0 }
        let ranks = (0..<hosts).map { rank(of: $0, in: present) }
        return (0..<hosts).sorted { (ranks[$0], $0) < (ranks[$1], $1) }
    }

    /// The order in which hosts are tried.
    private enum Rank: Int, Comparable {
        case lastGood, primary, standbyOrUnknown, failed, unreachable, replaced

        static func < (one: Rank, other: Rank) -> Bool { one.rawValue < other.rawValue }
    }

    /// Returns the rank of a host. The last finding about the host counts, unless a connection to it has failed since.
    private func rank(of host: Int, in state: State) -> Rank {
        let failedAt = state.failedAt[host]
        let isLastGood = failedAt == nil && host == state.lastGood
        guard let finding = state.findings[host], finding.at > failedAt ?? 0 else {
            if failedAt != nil { return .failed }
            return isLastGood ? .lastGood : .standbyOrUnknown
        }
        switch finding.what {
        case .primary(let timeline) where hasLeftBehind(timeline): return .replaced
        case .primary: return isLastGood ? .lastGood : .primary
        case .standby: return isLastGood ? .lastGood : .standbyOrUnknown
        case .unreachable: return .unreachable
        }
    }

    /// Whether a host was found to be the primary after a time.
    func isPrimary(_ host: Int, since time: UInt64) -> Bool {
        guard let finding = state.withLock({ $0.findings[host] }), finding.at > time,
            case .primary(let timeline) = finding.what
        else { return false }
        return !hasLeftBehind(timeline)
    }

    /// Notes the role of a host that was just asked.
    func didFind(_ finding: Finding, at host: Int) {
        state.withLock { $0.findings[host] = (finding, Self.now) }
    }

    /// Notes a new connection to a host.
    func didConnect(to host: Int) {
        state.withLock { state in
            state.lastGood = host
            state.failedAt[host] = nil
        }
    }

    /// Notes that a connection to a host was lost or refused.
    func didLose(_ host: Int) {
        state.withLock { $0.failedAt[host] = Self.now }
    }

    private static var now: UInt64 { DispatchTime.now().uptimeNanoseconds }

    // MARK: Exchanges without a response

    /// Notes the backends of a host.
    ///
    /// - Parameter askedAt: when the query for them was sent, in monotonic nanoseconds.
    func didFind(_ backends: Backends, on host: Int, askedAt: UInt64) {
        state.withLock { $0.backends[host] = (backends, askedAt) }
    }

    /// Returns the state of a backend that has not responded in time.
    ///
    /// - Parameters:
    ///   - backend: the process id of the backend; `nil` behind a pooler, which hides it.
    ///   - time: when the response was found to be late, in monotonic nanoseconds. Only later findings count.
    func verdict(on backend: Int32?, of host: Int, since time: UInt64) -> Verdict {
        guard let latest = state.withLock({ $0.backends[host] }), latest.askedAt > time else { return .unknown }
        let found = latest.found
        // Any of the server's backends may serve the connection. If one waits for a standby, it may be this one.
        guard let backend else { return found.awaitingStandby.isEmpty ? .isBusy : .waitsForStandby }
        guard found.busy.contains(backend) else { return .isIdle }
        return found.awaitingStandby.contains(backend) ? .waitsForStandby : .isBusy
    }
}

import Storage
import Synchronization

/// What a store knows of the servers that its connection string names; its connections share it.
final class Cluster: Sendable {
    /// The place of a server in the history of its cluster. A standby that is promoted begins a timeline with a greater
    /// number, so a primary with a lower one was left behind: what it has may be stale, and its commits are lost.
    struct Timeline: Equatable {
        /// What `initdb` gave the cluster. Timelines of different clusters cannot be compared.
        let systemID: String
        let number: Int
    }

    /// What a backend is doing that has not responded in time.
    enum Verdict {
        /// It has committed, and waits for a synchronous standby.
        case waitsForStandby
        case other
        case unknown
    }

    private struct State {
        var systemID: String?
        var lastGood = 0
        var suspect: Int?
        /// The backends that wait for a standby, by host, and when they were asked for, in monotonic nanoseconds.
        var waiting: [Int: (backends: Set<Int32>, askedAt: UInt64)] = [:]
    }

    private let state = Mutex(State())
    /// The greatest number of a timeline.
    private let newest = Atomic<Int>(0)
    private let synchronous = Atomic<Bool>(false)
    private let parked = Atomic<Int>(0)
    private let reconnections = Atomic<Int>(0)

    /// Whether a commit waits for a standby, as far as is known.
    var isSynchronous: Bool { synchronous.load(ordering: .relaxed) }

    /// The number of connections whose backends have not confirmed a commit in time.
    var parkedConnections: Int { parked.load(ordering: .relaxed) }

    /// How often a connection was made in place of a lost one.
    var reconnects: Int { reconnections.load(ordering: .relaxed) }

    func didReconnect() {
        reconnections.add(1, ordering: .relaxed)
    }

    func didPark() {
        parked.add(1, ordering: .relaxed)
    }

    func didUnpark() {
        parked.subtract(1, ordering: .relaxed)
    }

    // MARK: Timelines

    /// The greatest number of a timeline that was seen; 0 if none was.
    var newestTimeline: Int { newest.load(ordering: .relaxed) }

    /// Notes what a primary said of itself.
    func didSee(_ timeline: Timeline?, isSynchronous: Bool) {
        if let timeline {
            let isCurrent = state.withLock { state in
                // Another cluster may have taken its place, after an upgrade with pg_upgrade for example.
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

    /// Whether another server has become the primary since. Cheap.
    func hasLeftBehind(_ timeline: Timeline?) -> Bool {
        guard let timeline, timeline.number < newest.load(ordering: .relaxed) else { return false }
        return state.withLock { $0.systemID == timeline.systemID }
    }

    // MARK: Hosts

    /// The order in which to try hosts: the last that served first, unless it has failed since.
    func order(of hosts: Int) -> [Int] {
        let (lastGood, suspect) = state.withLock { ($0.lastGood, $0.suspect) }
        let others = (0..<hosts).filter { $0 != lastGood }
        guard lastGood < hosts else { return others }
        return suspect == lastGood ? others + [lastGood] : [lastGood] + others
    }

    func didConnect(to host: Int) {
        state.withLock { ($0.lastGood, $0.suspect) = (host, nil) }
    }

    func didLose(_ host: Int) {
        state.withLock { $0.suspect = host }
    }

    // MARK: Commits that wait for a standby

    func didFind(waiting backends: Set<Int32>, on host: Int, askedAt: UInt64) {
        state.withLock { $0.waiting[host] = (backends, askedAt) }
    }

    /// - Parameters:
    ///   - backend: its process id; `nil` behind a pooler, which hides it.
    ///   - time: when it was late, in monotonic nanoseconds.
    func verdict(on backend: Int32?, of host: Int, since time: UInt64) -> Verdict {
        guard let known = state.withLock({ $0.waiting[host] }), known.askedAt > time else { return .unknown }
        let waits = backend.map { known.backends.contains($0) } ?? !known.backends.isEmpty
        return waits ? .waitsForStandby : .other
    }
}

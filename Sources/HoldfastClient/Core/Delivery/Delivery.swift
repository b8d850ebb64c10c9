import Foundation
import Synchronization

/// Sends what waits of one kind, and settles each event by what the server says of it. Kinds know nothing of each other's
/// trouble.
final class Delivery: Sendable {
    private let kind: EventKind
    private let queue: DurableQueue
    private let server: HoldfastServer
    private let batchSize: Int
    private let notices: DeliveryNotices
    private let clock: any HoldfastClock
    private let state = Mutex(State())

    private struct State {
        /// For how long the server does not want to be asked.
        var rest: Rest?
        /// Whether events that are postponed are to be sent too.
        var resumes = false
        /// How often in a row no event of a batch was settled.
        var vainBatches = 0
    }

    /// Why events are still waiting, and are not sent for the moment.
    struct Failure: Sendable {
        var error: HoldfastError
        /// Whether the events may be the reason rather than the server or the way to it.
        var mayBeTheEvents = false

        var retryAfter: Duration? {
            if case .unavailable(_, let retryAfter) = error { retryAfter } else { nil }
        }
    }

    /// Bytes of one request's events.
    private static let batchBytes = 512 * 1024
    /// After so many batches in a row of which no event is settled the server is left alone for a while.
    private static let patience = 2

    init(
        kind: EventKind, queue: DurableQueue, server: HoldfastServer, batchSize: Int, notices: DeliveryNotices,
        clock: any HoldfastClock
    ) {
        self.kind = kind
        self.queue = queue
        self.server = server
        self.batchSize = batchSize
        self.notices = notices
        self.clock = clock
    }

    /// Has the next call of ``deliverAll()`` send events that are postponed too.
    func resumePostponed() {
        state.withLock { $0.resumes = true }
    }

    /// Sends all that is due, unless the server wants to be left alone. One call at a time.
    ///
    /// - Returns: why some still wait; `nil` when only those do that are postponed by themselves.
    func deliverAll() async -> Failure? {
        let (resumes, left) = state.withLock { state in
            defer { state.resumes = false }
            return (state.resumes, state.rest?.left(at: clock.now) ?? .zero)
        }
        if resumes { queue.resume(kind) }
        guard left == .zero else { return Failure(error: .unavailable(status: 503, retryAfter: left)) }
        var patience = Self.patience
        while true {
            let events = queue.first(of: kind, atMost: batchSize, bytes: Self.batchBytes, at: clock.now)
            guard !events.isEmpty else { return nil }
            var hasSettled = false
            let failure = await deliver(events, &hasSettled)
            if hasSettled {
                patience = Self.patience
                state.withLock { $0.vainBatches = 0 }
            }
            guard let failure else { continue }
            if failure.mayBeTheEvents {
                postponeSome(of: events, failure.error)
                patience -= 1
                if patience > 0 { continue }
            } else {
                notices.tell(queue.waiting(events), .postponed(failure.error))
            }
            if let retryAfter = failure.retryAfter {
                state.withLock { $0.rest = Rest(start: clock.now, duration: retryAfter) }
            }
            return failure
        }
    }

    /// Has the first of the events wait, twice as many each time, so that others are tried soon.
    private func postponeSome(of events: [QueuedEvent], _ reason: HoldfastError) {
        let count = state.withLock { state in
            defer { state.vainBatches += 1 }
            return 1 << min(state.vainBatches, 10)
        }
        let some = Array(events.prefix(count))
        queue.postpone(some.reduce(into: [:]) { $0[$1.number] = reason }, of: kind, at: clock.now)
        notices.tell(queue.waiting(events), .postponed(reason))
    }

    /// Sends events in one request, and those that its answer does not settle in smaller ones, until it is known which of
    /// them the server does not want.
    ///
    /// - Parameter hasSettled: whether the server has settled one of the batch, so that an event which it does not settle
    ///   alone is itself the reason.
    private func deliver(_ events: [QueuedEvent], _ hasSettled: inout Bool) async -> Failure? {
        let settlements: [HoldfastServer.Settlement]
        do throws(HoldfastError) {
            settlements = try await server.deliver(kind, events.map(\.payload))
        } catch {
            return Failure(error: error)
        }
        if events.count == 1, case .open(let reason)? = settlements.first {
            guard hasSettled else { return Failure(error: reason, mayBeTheEvents: true) }
            _ = settle(events, [.postponed(reason)])
            return nil
        }
        let open = settle(events, settlements)
        guard open.count == events.count else {
            hasSettled = true
            return open.isEmpty ? nil : await deliver(open, &hasSettled)
        }
        let middle = open.count / 2
        if let failure = await deliver(Array(open[..<middle]), &hasSettled) { return failure }
        return await deliver(Array(open[middle...]), &hasSettled)
    }

    /// - Returns: the events of which the server does not say what became.
    private func settle(_ events: [QueuedEvent], _ settlements: [HoldfastServer.Settlement]) -> [QueuedEvent] {
        var open: [QueuedEvent] = []
        var settled: [QueuedEvent] = []
        var postponed: [UInt64: HoldfastError] = [:]
        var outcomes: [(event: QueuedEvent, outcome: DeliveryNotice.Outcome)] = []
        for (event, settlement) in zip(events, settlements) {
            switch settlement {
            case .stored:
                settled.append(event)
                outcomes.append((event, .delivered))
            case .refused(let reason):
                settled.append(event)
                outcomes.append((event, .refused(reason: reason)))
            case .postponed(let error):
                postponed[event.number] = error
                outcomes.append((event, .postponed(error)))
            case .open:
                open.append(event)
            }
        }
        queue.postpone(postponed, of: kind, at: clock.now)
        // An event that was dropped meanwhile, to make room, has been told.
        let waiting = queue.waiting(events.filter { postponed[$0.number] != nil })
        let told = Set((waiting + queue.remove(settled)).map(\.number))
        for (event, outcome) in outcomes where told.contains(event.number) { notices.tell([event], outcome) }
        return open
    }
}

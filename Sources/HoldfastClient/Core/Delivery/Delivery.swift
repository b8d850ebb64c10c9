import Foundation
import Synchronization

/// Sends what waits in the queue: as soon as a batch is full, else after the flush interval, and after failures when
/// the back-off or the server says so.
final class Delivery: Sendable {
    private let queue: DurableQueue
    private let server: HoldfastServer
    private let batchSize: Int
    private let notices: DeliveryNotices
    private let clock: any HoldfastClock
    /// Before this moment the server does not want to be asked.
    private let notBefore = Mutex(Date.distantPast)

    /// Why events are still waiting.
    struct Failure: Sendable {
        var error: HoldfastError
        var retryAfter: Duration? {
            if case .unavailable(_, let retryAfter) = error { retryAfter } else { nil }
        }
    }

    /// Bytes of one request's events.
    private static let batchBytes = 512 * 1024

    init(
        queue: DurableQueue, server: HoldfastServer, batchSize: Int, notices: DeliveryNotices,
        clock: any HoldfastClock
    ) {
        self.queue = queue
        self.server = server
        self.batchSize = batchSize
        self.notices = notices
        self.clock = clock
    }

    /// Sends all that waits now, unless the server wants to be left alone. One call at a time.
    ///
    /// - Returns: why some still wait; `nil` when none does.
    func deliverAll() async -> Failure? {
        let rest = notBefore.withLock { $0.timeIntervalSince(clock.now) }
        // A clock that was set back must not keep events for longer than a server may ask.
        if rest > 0, rest <= 86_401 {
            return Failure(error: .unavailable(status: 503, retryAfter: .seconds(rest)))
        }
        var failure: Failure?
        for kind in EventKind.allCases {
            guard let new = await deliver(kind) else { continue }
            if failure?.retryAfter == nil { failure = new }
            guard let retryAfter = new.retryAfter else { continue }
            notBefore.withLock { $0 = clock.now.addingTimeInterval(retryAfter.inSeconds) }
            break
        }
        return failure
    }

    private func deliver(_ kind: EventKind) async -> Failure? {
        while true {
            let events = queue.first(of: kind, atMost: batchSize, bytes: Self.batchBytes)
            guard !events.isEmpty else { return nil }
            if let failure = await deliver(kind, events) { return failure }
        }
    }

    /// Sends events in one request, or, where that is refused as a whole, in smaller ones, until it is known which of
    /// them the server does not want.
    private func deliver(_ kind: EventKind, _ events: [QueuedEvent]) async -> Failure? {
        do throws(HoldfastError) {
            return settle(events, try await server.deliver(kind, events.map(\.payload)))
        } catch {
            guard case .refused(let status, let detail, let pointer) = error, Self.isOfTheEvents(status) else {
                notices.tell(events, .postponed(error))
                return Failure(error: error)
            }
            guard events.count > 1 else {
                return settle(events, [.refused(pointer.map { "\(detail) (\($0))" } ?? detail)])
            }
            let middle = events.count / 2
            if let failure = await deliver(kind, Array(events[..<middle])) { return failure }
            return await deliver(kind, Array(events[middle...]))
        }
    }

    private func settle(_ events: [QueuedEvent], _ settlements: [HoldfastServer.Settlement]) -> Failure? {
        var settled: [QueuedEvent] = []
        var failure: Failure?
        var told: [(QueuedEvent, DeliveryNotice.Outcome)] = []
        for (event, settlement) in zip(events, settlements) {
            switch settlement {
            case .stored:
                settled.append(event)
                told.append((event, .delivered))
            case .refused(let reason):
                settled.append(event)
                told.append((event, .refused(reason: reason)))
            case .postponed:
                let error = HoldfastError.unavailable(status: 503, retryAfter: nil)
                failure = Failure(error: error)
                told.append((event, .postponed(error)))
            }
        }
        queue.remove(settled)
        for (event, outcome) in told { notices.tell([event], outcome) }
        return failure
    }

    /// Whether a status says that the events are wrong, and not the token, the address or the moment.
    private static func isOfTheEvents(_ status: Int) -> Bool {
        ![401, 403, 404, 405, 407, 421].contains(status)
    }
}

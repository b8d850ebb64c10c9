import Synchronization

/// The outcome of an event's delivery; see ``HoldfastClient/deliveries()``.
public struct DeliveryNotice: Sendable {
    public enum Outcome: Sendable {
        /// The server stored it.
        case delivered
        /// The server refused it for good; it is not sent again.
        case refused(reason: String)
        /// It was not stored in the queue, or was removed from a full queue.
        case dropped(reason: String)
        /// Delivery failed for now; it is sent again.
        case postponed(HoldfastError)
    }

    public let event: HoldfastEvent
    public let outcome: Outcome
    /// Whether the event was in the queue.
    let wasKept: Bool

    init(event: HoldfastEvent, outcome: Outcome, wasKept: Bool = false) {
        self.event = event
        self.outcome = outcome
        self.wasKept = wasKept
    }
}

/// The observers of event deliveries.
final class DeliveryNotices: Sendable {
    private let listeners = Listeners<DeliveryNotice>()

    @discardableResult
    func observe(_ listener: @escaping @Sendable (DeliveryNotice) -> Void) -> ListenerToken {
        listeners.add(listener)
    }

    /// Notifies observers of events that were in the queue.
    func notify(_ events: [QueuedEvent], _ outcome: DeliveryNotice.Outcome) {
        guard !listeners.isEmpty else { return }
        for event in events {
            guard let content = HoldfastEvent(event.kind, event.payload) else { continue }
            notify(DeliveryNotice(event: content, outcome: outcome, wasKept: true))
        }
    }

    func notify(_ notice: DeliveryNotice) {
        listeners.notify(notice)
    }

    /// Returns a stream of future notices that buffers the newest 1,000.
    func stream() -> AsyncStream<DeliveryNotice> {
        let (stream, continuation) = AsyncStream<DeliveryNotice>.makeStream(bufferingPolicy: .bufferingNewest(1_000))
        let token = listeners.add { continuation.yield($0) }
        continuation.onTermination = { _ in token.cancel() }
        return stream
    }
}

import Synchronization

/// Those who want to know what becomes of events.
final class DeliveryNotices: Sendable {
    private let listeners = Listeners<DeliveryNotice>()

    @discardableResult
    func observe(_ listener: @escaping @Sendable (DeliveryNotice) -> Void) -> ListenerToken {
        listeners.add(listener)
    }

    /// Tells of events that were in the queue.
    func tell(_ events: [QueuedEvent], _ outcome: DeliveryNotice.Outcome) {
        guard !listeners.isEmpty else { return }
        for event in events {
            guard let content = HoldfastEvent(event.kind, event.payload) else { continue }
            tell(DeliveryNotice(event: content, outcome: outcome, wasKept: true))
        }
    }

    func tell(_ notice: DeliveryNotice) {
        listeners.tell(notice)
    }

    /// Notices from now on; a reader that is slow misses the oldest of more than a thousand.
    func stream() -> AsyncStream<DeliveryNotice> {
        let (stream, continuation) = AsyncStream<DeliveryNotice>.makeStream(bufferingPolicy: .bufferingNewest(1_000))
        let token = listeners.add { continuation.yield($0) }
        continuation.onTermination = { _ in token.cancel() }
        return stream
    }
}

/// The outcome of an event's delivery; see ``HoldfastClient/deliveries()``.
public struct DeliveryNotice: Sendable {
    public enum Outcome: Sendable {
        /// The server stored it.
        case delivered
        /// The server refused it for good; it is not sent again.
        case refused(reason: String)
        /// It was not stored in the queue, or was removed from a full queue.
        case dropped(reason: DropReason)
        /// Delivery failed for now; it is sent again.
        case postponed(HoldfastError)
    }

    /// The event that was to be delivered.
    public let event: HoldfastEvent
    /// What has become of the event.
    public let outcome: Outcome
    /// Whether the event was in the queue; `false` if the queue did not take it.
    let wasKept: Bool

    init(event: HoldfastEvent, outcome: Outcome, wasKept: Bool = false) {
        self.event = event
        self.outcome = outcome
        self.wasKept = wasKept
    }
}

/// Why an event was lost on the device.
public enum DropReason: Sendable, Hashable, CustomStringConvertible {
    /// The queue was full, and no event in it was postponed.
    case queueFull
    /// The queue was full, and a new event took the place of this one, which was postponed for longest.
    case replaced
    /// No server can store the event, or it is too long for the queue.
    case invalid(String)
    /// The file of the queue could not be written.
    case storage(String)

    public var description: String {
        switch self {
        case .queueFull: "the queue is full"
        case .replaced: "the queue is full, and this event was postponed for longest"
        case .invalid(let reason), .storage(let reason): reason
        }
    }
}

/// Counts of events since the client was created, by outcome.
public struct QueueMetrics: Sendable, Hashable {
    /// Events in the queue now.
    public internal(set) var waiting = 0
    /// Size of these events in bytes.
    public internal(set) var waitingBytes = 0
    /// Events in the queue that are postponed, because the server did not accept them for now.
    public internal(set) var postponed = 0
    /// Events that the server has stored.
    public internal(set) var sent = 0
    /// Postponements; an event that is postponed again counts again.
    public internal(set) var postponements = 0
    /// Events that the server refused.
    public internal(set) var refused = 0
    /// Events that were dropped because the queue was full, the new or a postponed one.
    public internal(set) var droppedQueueFull = 0
    /// Events that were dropped because they were invalid or too long.
    public internal(set) var droppedInvalid = 0
    /// Events that were dropped because the file could not be written.
    public internal(set) var droppedStorage = 0
    /// Events of earlier runs that could not be read when the client was created, because the file of the queue was
    /// damaged or of a later release. An incomplete end of the file counts as one event, and so does a file of which
    /// nothing can be read: that is kept in the directory as `queue.log.unreadable`, until it is replaced by another
    /// such file.
    public internal(set) var unreadable = 0

    /// Counts an outcome of several events.
    fileprivate mutating func count(_ outcome: DeliveryNotice.Outcome, _ number: Int) {
        switch outcome {
        case .delivered: sent += number
        case .refused: refused += number
        case .postponed: postponements += number
        case .dropped(.queueFull), .dropped(.replaced): droppedQueueFull += number
        case .dropped(.invalid): droppedInvalid += number
        case .dropped(.storage): droppedStorage += number
        }
    }
}

/// Notifies observers of the outcomes of deliveries, and counts the outcomes.
final class DeliveryNotices: Sendable {
    private let listeners = Listeners<DeliveryNotice>()
    private let counts = Locked(QueueMetrics())

    /// Counts of outcomes. The members about the content of the queue are zero: the caller sets them.
    var metrics: QueueMetrics { counts.withLock { $0 } }

    @discardableResult
    func observe(_ listener: @escaping @Sendable (DeliveryNotice) -> Void) -> ListenerToken {
        listeners.add(listener)
    }

    /// Notifies observers of events that were in the queue.
    func notify(_ events: [QueuedEvent], _ outcome: DeliveryNotice.Outcome) {
        counts.withLock { $0.count(outcome, events.count) }
        guard !listeners.isEmpty else { return }
        for event in events {
            guard let content = HoldfastEvent(event.kind, event.payload) else { continue }
            listeners.notify(DeliveryNotice(event: content, outcome: outcome, wasKept: true))
        }
    }

    /// Notifies observers of an event that was not in the queue, in a task, because the caller may hold a lock that an
    /// observer takes.
    func notify(_ notice: DeliveryNotice) {
        counts.withLock { $0.count(notice.outcome, 1) }
        guard !listeners.isEmpty else { return }
        Task { [listeners] in listeners.notify(notice) }
    }

    /// Returns a stream of future notices, mapped by a function. Notices that are mapped to `nil` are left out. It
    /// buffers the newest 1,000.
    func stream<Element: Sendable>(
        _ element: @escaping @Sendable (DeliveryNotice) -> Element?
    ) -> AsyncStream<Element> {
        listeners.stream(buffering: 1_000, element)
    }

    /// Ends all streams.
    func endStreams() { listeners.end() }
}

public import Bucketing

/// Something that happened to a user.
public enum UserEvent: Sendable {
    case exposure(Exposure)
    case goal(GoalEvent)

    public var userID: Identifier {
        switch self {
        case .exposure(let exposure): exposure.userID
        case .goal(let event): event.userID
        }
    }
}

/// An event, and when this process has received it.
public struct ReceivedEvent: Sendable {
    public var event: UserEvent
    /// Nanoseconds of the monotonic clock, which all processes of a machine share.
    public var receivedAt: UInt64

    public init(_ event: UserEvent, receivedAt: UInt64) {
        self.event = event
        self.receivedAt = receivedAt
    }
}

/// What became of an event.
public enum EventOutcome: Sendable {
    case stored
    /// It was known already; nothing was written.
    case repeated
}

/// Where exposures and goal events are kept, and counted up as they come.
///
/// Of each user and experiment the first exposure is kept, by the time when it happened; later ones only tell whether
/// the user stays in one variation. Results count goal events that happened since then, and for comparison those of
/// the time before it, see ``EventRules``.
public protocol EventStore: Sendable {
    /// Stores events in the order given, in one transaction; but for those of a user whom another process has erased
    /// since they were received, which are then as if they had been stored before.
    ///
    /// - Parameter completion: called when all are durable, with what became of each, or when all have failed.
    func record(
        _ events: [ReceivedEvent], completion: @escaping @Sendable (Result<[EventOutcome], StorageError>) -> Void)

    /// Exposures in the order of their numbers. Blocks; not for an event loop.
    func exposures(after number: Int64, limit: Int) throws(StorageError) -> [StoredExposure]

    /// Goal events in the order of their numbers. Blocks; not for an event loop.
    func goalEvents(after number: Int64, limit: Int) throws(StorageError) -> [StoredGoalEvent]

    /// How the users of each variation did for a goal, in the order of the variation ids' bytes; one read of what was
    /// counted up before. Blocks; not for an event loop.
    func tallies(experimentID: Identifier, goal: Identifier) throws(StorageError) -> [VariationTally]

    /// The goals that exposed users of an experiment have reached, before or since. Blocks; not for an event loop.
    func goals(experimentID: Identifier, limit: Int) throws(StorageError) -> [Identifier]
}

/// What matters to results: times, in milliseconds, and values.
public enum EventRules {
    /// Whether a value is of use: of greater and smaller ones squares, sums and shares leave what a `Double` can be.
    public static func isUsable(value: Double) -> Bool {
        value == 0 || (1e-15...1e15).contains(abs(value))
    }

    /// An event that happened earlier than this before it is received is refused.
    public static let maximumAge: Timestamp = 7 * 86_400_000
    /// How far ahead of this server's clock a sender's may be; such an event happens now.
    public static let maximumLead: Timestamp = 5 * 60_000
    /// Events of this time before the first exposure tell how the user did without the experiment.
    public static let lookBack: Timestamp = 14 * 86_400_000
    /// Events must be kept for so long: while an exposure may still come that happened before the one that is known,
    /// what counts before and since it is found in them.
    public static let minimumRetention = maximumAge + lookBack + 86_400_000
}

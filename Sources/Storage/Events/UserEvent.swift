public import Bucketing
public import Chronology

/// A user was exposed to an experiment: the variation took effect, or could have.
public struct Exposure: Sendable, Equatable {
    public var userID: Identifier
    public var experimentID: Identifier
    public var experimentKey: Identifier
    public var variationID: Identifier
    public var happenedAt: Instant
    /// Whether the caller, the whitelist or an admin chose the variation, instead of chance.
    public var isChosen: Bool
    public var sdkKey: String
    /// A JSON object. Its member `attributes` has the attributes of the request that caused the exposure.
    public var payload: [UInt8]
    /// The allocation in the datafile with which the variation was determined; `nil` for an exposure that was read from
    /// a store.
    public var active: AllocationPeriod?
    /// The newest datafile version of any project when the variation was determined, for an exposure that enrolls its
    /// user; `nil` for an exposure that enrolls nobody. If a newer datafile is active when the exposure is recorded,
    /// the outcome is ``EventOutcome/outdated``.
    public var enrollsWith: Int64?
    /// When an edge accepted the exposure; `nil` for an exposure that did not come from an edge, or was read from a
    /// store.
    public var acceptedAt: Instant?

    public init(
        userID: Identifier, experimentID: Identifier, experimentKey: Identifier, variationID: Identifier,
        happenedAt: Instant, isChosen: Bool, sdkKey: String, payload: [UInt8] = Array("{}".utf8),
        active: AllocationPeriod? = nil, enrollsWith: Int64? = nil
    ) {
        self.userID = userID
        self.experimentID = experimentID
        self.experimentKey = experimentKey
        self.variationID = variationID
        self.happenedAt = happenedAt
        self.isChosen = isChosen
        self.sdkKey = sdkKey
        self.payload = payload
        self.active = active
        self.enrollsWith = enrollsWith
    }
}

extension Exposure {
    /// Whether the exposure was recorded by another server, before the experiment was imported into this one.
    package var isImported: Bool { active?.number == AllocationPeriod.imported }
}

/// The earliest exposure of a user to an experiment. Later exposures are not stored: they only show whether the user
/// stays in one variation. Results count the goal events since the first exposure and, for comparison, the goal events
/// before it; see ``EventRules``.
public struct StoredExposure: Sendable {
    /// Greater than the numbers of all exposures stored or changed earlier. A changed exposure gets a new number.
    public var number: Int64
    /// The first exposure. Its ``Exposure/isChosen`` is set if the variation of any exposure was chosen.
    public var exposure: Exposure
    /// Whether the user was exposed to several variations.
    public var hasMultipleVariations: Bool
    /// The number of the ``AllocationPeriod`` under which the user is tallied. It is determined when the exposure is
    /// first stored, and does not change afterwards.
    public var period: Int64

    public init(
        number: Int64, exposure: Exposure, hasMultipleVariations: Bool, period: Int64 = AllocationPeriod.unknown
    ) {
        self.number = number
        self.exposure = exposure
        self.hasMultipleVariations = hasMultipleVariations
        self.period = period
    }

    /// The bit of ``hasMultipleVariations`` in ``flags``.
    static let multipleVariations: UInt8 = 1
    /// The bit of ``Exposure/isChosen`` in ``flags``.
    static let chosen: UInt8 = 2

    /// Both flags as bits, for the row in a store and for the feed.
    var flags: UInt8 {
        (hasMultipleVariations ? Self.multipleVariations : 0) | (exposure.isChosen ? Self.chosen : 0)
    }

    /// Whether results include the user.
    public var isCounted: Bool { !hasMultipleVariations && !exposure.isChosen }
}

/// A user reached a goal.
public struct GoalEvent: Sendable, Equatable {
    public var userID: Identifier
    public var goal: Identifier
    /// A finite number. Its unit depends on the goal.
    public var value: Double
    public var happenedAt: Instant
    public var receivedAt: Instant
    /// The sender's id of the event. Only the first of a user's events with one id is stored.
    public var senderID: Identifier?
    /// Empty if the sender named no project.
    public var sdkKey: String
    /// A JSON object.
    public var payload: [UInt8]
    /// When an edge accepted the event; `nil` for an event that did not come from an edge, or was read from a store.
    public var acceptedAt: Instant?

    public init(
        userID: Identifier, goal: Identifier, value: Double, happenedAt: Instant, receivedAt: Instant,
        senderID: Identifier? = nil, sdkKey: String = "", payload: [UInt8] = Array("{}".utf8)
    ) {
        self.userID = userID
        self.goal = goal
        self.value = value
        self.happenedAt = happenedAt
        self.receivedAt = receivedAt
        self.senderID = senderID
        self.sdkKey = sdkKey
        self.payload = payload
    }
}

/// A stored goal event.
public struct StoredGoalEvent: Sendable {
    /// Greater than the numbers of all events stored earlier.
    public var number: Int64
    public var event: GoalEvent

    public init(number: Int64, event: GoalEvent) {
        self.number = number
        self.event = event
    }
}

/// An exposure or a goal event of a user.
public enum UserEvent: Sendable {
    case exposure(Exposure)
    case goal(GoalEvent)

    public var userID: Identifier {
        switch self {
        case .exposure(let exposure): exposure.userID
        case .goal(let event): event.userID
        }
    }

    /// When an edge accepted the event; `nil` for an event that did not come from an edge.
    public var acceptedAt: Instant? {
        switch self {
        case .exposure(let exposure): exposure.acceptedAt
        case .goal(let event): event.acceptedAt
        }
    }

    /// Returns the event with another user, for example the account into which its user was merged.
    public func moved(to userID: Identifier) -> UserEvent {
        switch self {
        case .exposure(var exposure):
            exposure.userID = userID
            return .exposure(exposure)
        case .goal(var event):
            event.userID = userID
            return .goal(event)
        }
    }
}

/// An event and the time at which this process received it.
public struct ReceivedEvent: Sendable {
    public var event: UserEvent
    /// Nanoseconds of the monotonic clock, which all processes on a machine share. Stores compare it with the times of
    /// erasures.
    public var receivedAt: UInt64

    public init(_ event: UserEvent, receivedAt: UInt64) {
        self.event = event
        self.receivedAt = receivedAt
    }
}

/// The result of recording an event.
public enum EventOutcome: Sendable {
    case stored
    /// The event is stored already, or a later exposure to the same variation adds nothing. Nothing was written.
    case repeated
    /// The experiment was not running when the exposure happened. The exposure was only counted.
    case notRunning
    /// The exposure would enroll the user with a datafile that is no longer the newest. Nothing was written. The caller
    /// should determine the variation again.
    case outdated
    /// The user was erased, or merged into another, after an edge had accepted the event. Nothing was written. The
    /// caller should read which of the two has happened (``RemovedUser``).
    case removed
}

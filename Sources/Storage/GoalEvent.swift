public import Bucketing

/// A user reached a goal.
public struct GoalEvent: Sendable, Equatable {
    public var userID: Identifier
    public var goal: Identifier
    /// Finite; what it measures is the goal's own matter.
    public var value: Double
    public var happenedAt: Timestamp
    public var receivedAt: Timestamp
    /// The sender's id: of two events of one user with one id, only the first is stored.
    public var senderID: Identifier?
    /// Empty when the sender named no project.
    public var sdkKey: String
    /// A JSON object.
    public var payload: [UInt8]

    public init(
        userID: Identifier, goal: Identifier, value: Double, happenedAt: Timestamp, receivedAt: Timestamp,
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

/// A goal event as it is stored.
public struct StoredGoalEvent: Sendable {
    /// Greater than those of all events stored before.
    public var number: Int64
    public var event: GoalEvent

    public init(number: Int64, event: GoalEvent) {
        self.number = number
        self.event = event
    }
}

/// One decision or several, and what is to be done about them.
public struct DecisionResult<Value: Sendable>: Sendable {
    public let value: Value
    /// The decision events that are due, in the order in which they are sent; also those of flags that were left
    /// out because they are off.
    public let impressions: [Impression]
    /// What is to be stored.
    public let newAssignments: [NewAssignment]
    /// Whether an assignment of the user was passed over because the datafile does not list its variation. An older
    /// datafile may do so wrongly.
    public let passesOverAssignment: Bool

    public init(
        value: Value, impressions: [Impression] = [], newAssignments: [NewAssignment] = [],
        passesOverAssignment: Bool = false
    ) {
        self.value = value
        self.impressions = impressions
        self.newAssignments = newAssignments
        self.passesOverAssignment = passesOverAssignment
    }
}

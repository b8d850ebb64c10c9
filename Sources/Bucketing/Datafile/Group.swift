/// Experiments that lie together; with the policy `random` a user takes part in at most one of them.
public final class Group: Sendable {
    public let id: Identifier
    public let policy: String
    /// Which experiment has which bucket values.
    public let trafficAllocation: TrafficAllocation
    public let experimentIDs: [Identifier]

    init(id: Identifier, policy: String, trafficAllocation: TrafficAllocation, experimentIDs: [Identifier]) {
        self.id = id
        self.policy = policy
        self.trafficAllocation = trafficAllocation
        self.experimentIDs = experimentIDs
    }

    static func excludes(policy: String?) -> Bool {
        policy == "random"
    }
}

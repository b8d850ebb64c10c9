/// What kinds of events there are. Those of one kind are sent in their order, kinds beside each other.
public enum EventKind: UInt8, Sendable, CaseIterable, Codable {
    case attributes = 1
    /// Of a profile; what the server has stays.
    case save = 2
    /// Of a profile; replaces what the server has of the same experiments.
    case replacingSave = 3
    case exposure = 4
    case goal = 5
}

/// What kinds of events there are. Kinds are sent beside each other.
public enum EventKind: UInt8, Sendable, CaseIterable, Codable {
    case attributes = 1
    /// Of a profile; what the server has stays.
    case save = 2
    /// Of a profile; replaces what the server has of the same experiments.
    case replacingSave = 3
    case exposure = 4
    case goal = 5

    /// Whether events of one user are stored in the order in which they happened. Exposures and goals carry their time.
    var keepsOrder: Bool {
        switch self {
        case .attributes, .save, .replacingSave: true
        case .exposure, .goal: false
        }
    }
}

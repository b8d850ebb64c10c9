/// What ``ProfileRules`` made of a change: the answer, and what the store must write for it.
public struct ProfileOutcome: Sendable {
    /// What to write. It is not always told by the result: erasing a profile whose assignments have all expired
    /// changes nothing that anybody can see, and yet must delete what is stored.
    public enum Effect: Sendable, Hashable {
        case none
        case put(ProfileRecord)
        case delete
    }

    public var result: ProfileChangeResult
    public var effect: Effect

    public init(result: ProfileChangeResult, effect: Effect) {
        self.result = result
        self.effect = effect
    }
}

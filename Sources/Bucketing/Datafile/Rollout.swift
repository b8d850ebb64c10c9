/// The delivery rules of a flag; the last one is for everyone else.
public struct Rollout: Sendable {
    public let id: Identifier
    public let rules: [Experiment]
}

/// One of the things that a user may see in an experiment.
public struct Variation: Sendable {
    public let id: Identifier
    public let key: Identifier
    /// Whether the flag is on for users of this variation.
    public let isFeatureEnabled: Bool
    /// The values that differ from the flag's defaults, by the variable's id.
    public let variableValues: [Identifier: String]
    /// What the variation was weighted with when it was defined over the API. Nothing is decided by it: the traffic
    /// allocation is what counts.
    public let weight: Double?
}

extension [Variation] {
    /// The last with an id: a later one takes its place.
    func variation(id: Identifier) -> Variation? {
        last { $0.id == id }
    }

    /// The last with a key: a later one takes its place.
    func variation(key: Identifier) -> Variation? {
        last { $0.key == key }
    }

    /// Of several with one key the last, at the place of the first; those of experiments are kept so.
    func lastOfEachKey() -> [Variation] {
        var variations = KeyedList<Variation>()
        for variation in self {
            variations.set(variation.key, variation)
        }
        return variations.values
    }
}

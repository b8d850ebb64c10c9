public import JSON

extension Datafile {
    /// Whether an experiment and its flags have the same variations and values in another datafile. Compares what was
    /// linked: even with equal definitions, other elements with the same keys or ids can change it.
    public func delivers(_ experiment: Experiment, like other: Datafile) -> Bool {
        guard let now = other.experiment(id: experiment.id) else { return false }
        guard experiment.variationsOfKey == now.variationsOfKey, experiment.variations == now.variations else {
            return false
        }
        return flags.allSatisfy { flag in
            guard flag.experiments.contains(where: { $0.id == experiment.id }) else { return true }
            guard let now = other.flag(key: flag.key) else { return false }
            return now === flag
                || flag.experiments.map(\.id) == now.experiments.map(\.id) && flag.variations == now.variations
                    && flag.values(for: nil) == now.values(for: nil)
                    && zip(flag.variations, now.variations).allSatisfy { flag.values(for: $0) == now.values(for: $1) }
        }
    }

    /// Returns conditions with each audience in the place of its id.
    public func resolved(_ conditions: JSONValue) -> JSONValue {
        if let list = conditions.array { return .array(list.map(resolved)) }
        return conditions.string.flatMap { audiencesByID[Identifier($0)] }?.conditions ?? conditions
    }
}

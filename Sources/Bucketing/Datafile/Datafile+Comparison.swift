public import JSON

extension Datafile {
    /// Whether an experiment and its flags have the same variations and values in another datafile.
    ///
    /// Compares the compiled elements and not their JSON, because another element with the same key or id can change
    /// the values of an experiment whose own JSON is unchanged.
    public func delivers(_ experiment: Experiment, like other: Datafile) -> Bool {
        guard let otherExperiment = other.experiment(id: experiment.id),
            experiment.variationsOfKey == otherExperiment.variationsOfKey,
            experiment.variations == otherExperiment.variations
        else { return false }
        return flags.allSatisfy { flag in
            guard flag.experiments.contains(where: { $0.id == experiment.id }) else { return true }
            return other.flag(key: flag.key).map { flag.hasSameValues(as: $0) } ?? false
        }
    }

    /// Returns audience conditions with each id of an audience replaced by the conditions of the audience.
    public func resolved(_ conditions: JSONValue) -> JSONValue {
        if let list = conditions.array { return .array(list.map(resolved)) }
        return conditions.string.flatMap { audiencesByID[Identifier($0)] }?.conditions ?? conditions
    }
}

extension Flag {
    /// Whether another flag has the same experiments, variations and values.
    fileprivate func hasSameValues(as other: Flag) -> Bool {
        if self === other { return true }
        guard experiments.map(\.id) == other.experiments.map(\.id), variations == other.variations,
            values(for: nil) == other.values(for: nil)
        else { return false }
        return variations.allSatisfy { values(for: $0) == other.values(for: $0) }
    }
}

public import JSON

extension Datafile {
    /// Whether an experiment and its flags have the same variations and values in another datafile.
    ///
    /// This compares the compiled elements and not their JSON. If several elements have the same key or id, the last
    /// one counts, so a change of one can change the values of another whose own JSON stays the same.
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

    /// Returns the bucket values of its group that an experiment has, as ranges in ascending order; empty if the
    /// experiment is in no group of mutually exclusive experiments. Two datafiles enroll the same users of the group
    /// only if the ranges are equal, not just the shares.
    public func groupRanges(ofExperiment id: Identifier) -> [Range<Int>] {
        guard let allocation = experiment(id: id)?.exclusionGroup?.trafficAllocation else { return [] }
        var ranges: [Range<Int>] = []
        // An allocation gives the end of each range only. A range starts at the greatest end before it.
        var start = 0
        for range in allocation.ranges {
            if range.entityID == id, range.end > start { ranges.append(start..<range.end) }
            start = max(start, range.end)
        }
        return ranges
    }

    /// Returns audience conditions in which the id of each audience is replaced by the conditions of that audience.
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

import Bucketing
import JSON

// Variations of several experiments that have the same id, as uploaded datafiles may have them.

/// A variation id that several served experiments share, with the values of all of them in the order of the datafile.
///
/// SDKs look up values by the id of the variation alone, so the last experiment with the id wins. Its variation
/// therefore has the values of all these experiments, and each flag finds its own value by the id of its variable.
struct SharedVariation: Sendable, Equatable {
    /// The id of the last experiment with the variation; empty if no served experiment has it.
    var lastExperiment: Identifier
    /// The members of `variables`.
    var values: [JSONValue]
}

/// Counts the variations with each id, so that an edit need not search all experiments for shared ids.
struct VariationIDs: Sendable, Equatable {
    private var counts: [Identifier: Int] = [:]
    /// The number of variations whose id an earlier variation has, too.
    private var repetitionCount = 0

    /// Whether several variations have one id.
    var hasShared: Bool { repetitionCount > 0 }

    init() {}

    init(_ experiments: DefinitionList<ExperimentDefinition>) {
        for id in experiments.map({ $0.variations.map(\.id) }).joined() { add(id) }
    }

    /// Replaces the ids of an experiment after an edit.
    ///
    /// - Parameters:
    ///   - former: the experiment before the edit; `nil` if it is new.
    ///   - experiment: the experiment after the edit; `nil` if it was removed.
    mutating func replace(_ former: ExperimentDefinition?, with experiment: ExperimentDefinition?) {
        guard former?.variations.map(\.id) != experiment?.variations.map(\.id) else { return }
        for variation in former?.variations ?? [] { remove(variation.id) }
        for variation in experiment?.variations ?? [] { add(variation.id) }
    }

    private mutating func add(_ id: Identifier) {
        counts[id, default: 0] += 1
        if counts[id] != 1 { repetitionCount += 1 }
    }

    private mutating func remove(_ id: Identifier) {
        let count = (counts[id] ?? 1) - 1
        counts[id] = count == 0 ? nil : count
        if count > 0 { repetitionCount -= 1 }
    }
}

extension ProjectDefinitions {
    /// Finds the shared variation ids again after a change.
    ///
    /// - Parameter former: the definitions before the change.
    /// - Returns: the ids of the experiments that must be written, because the values of a shared variation have
    ///   changed.
    mutating func updateSharedVariations(since former: ProjectDefinitions?) -> Set<Identifier> {
        if isEdit(of: former) {
            for key in experiments.touched { variationIDs.replace(former?.experiments[key], with: experiments[key]) }
        } else {
            variationIDs = VariationIDs(experiments)
        }
        let shared = variationIDs.hasShared ? findSharedVariations() : [:]
        guard shared != sharedVariations else { return [] }
        let ids = Set(shared.keys).union(sharedVariations.keys)
        sharedVariations = shared
        var affected: Set<Identifier> = []
        for experiment in experiments where experiment.variations.contains(where: { ids.contains($0.id) }) {
            affected.insert(experiment.id)
        }
        return affected
    }

    private func findSharedVariations() -> [Identifier: SharedVariation] {
        var known: Set<Identifier> = []
        var shared: [Identifier: SharedVariation] = [:]
        for variation in experiments.lazy.flatMap(\.variations) where !known.insert(variation.id).inserted {
            shared[variation.id] = SharedVariation(lastExperiment: "", values: [])
        }
        guard !shared.isEmpty else { return [:] }
        let owners = flagsByExperiment
        for experiment in experiments {
            guard let flag = servingFlag(of: experiment, owners[experiment.id] ?? []) else { continue }
            for variation in experiment.variations {
                shared[variation.id]?.lastExperiment = experiment.id
                shared[variation.id]?.values.append(
                    ["id": .string(flag.variableID), "value": JSONValue(variation.key)])
            }
        }
        return shared
    }

    /// The flags of each experiment, by the id of the experiment.
    private var flagsByExperiment: [Identifier: [FlagDefinition]] {
        var owners: [Identifier: [FlagDefinition]] = [:]
        for flag in flags {
            for experiment in experiments(of: flag) { owners[experiment.id, default: []].append(flag) }
        }
        return owners
    }

    /// Returns the flag that serves an experiment; `nil` if it is not served, or if another flag has it.
    ///
    /// - Parameter flags: the flags that have the experiment.
    func servingFlag(of experiment: ExperimentDefinition, _ flags: [FlagDefinition]) -> FlagDefinition? {
        guard isServed(experiment), flags.allSatisfy({ $0.content == .experiment }) else { return nil }
        return flags.first
    }
}

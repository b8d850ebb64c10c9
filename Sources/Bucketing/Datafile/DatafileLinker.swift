import JSON

/// Turns the elements of a ``DatafileModel`` into those of a ``Datafile``: replaces ids with the elements that have
/// them, and compiles the conditions of audiences. Elements of the former datafile that an edit has not changed are
/// reused.
///
/// The order matters: experiments need the conditions and the variations of holdouts, rollouts need the experiments,
/// and flags need all of them.
struct DatafileLinker {
    private let model: DatafileModel
    private let former: Datafile?
    private let changes: DatafileChanges?
    /// The experiments of the model. Feature rollouts also have their flag's variation for everyone else.
    private var experiments: KeyedList<ExperimentModel>
    private var elements = DatafileElements()

    /// The linked elements of a datafile.
    struct Linked {
        var experiments: [Experiment] = []
        var flags: [Flag] = []
        var rollouts: [Rollout] = []
        var holdouts: [Holdout] = []
        var mentions = Mentions()
        var hasLargeAudiences = false
        var elements = DatafileElements()
    }

    /// - Parameter changes: the parts of the model that differ from a former datafile; `nil` if there is no former one.
    init(_ model: DatafileModel, _ changes: DatafileChanges?) {
        self.model = model
        self.changes = changes
        former = changes?.former
        experiments = model.experiments
        elements.experiments = model.readExperiments
        elements.flags = model.readFlags
    }

    /// Links all elements. Call it once.
    mutating func link() -> Linked {
        var linked = Linked()
        compileConditions()
        for condition in elements.conditions.values { condition.collectMentions(into: &linked.mentions) }
        linked.hasLargeAudiences =
            !linked.mentions.segments.isEmpty || elements.conditions.values.contains { $0.isLarge }
        for variation in experiments.values.lazy.flatMap(\.variations) {
            elements.variableValues[variation.id] = variation.variableValues
        }
        for flag in model.flags.values { addEveryoneElseToFeatureRollouts(of: flag) }
        linked.holdouts = model.holdouts.map { Holdout($0, audiences: elements.conditions) }
        let experiments = linkedExperiments(besides: linked.holdouts)
        linked.experiments = experiments.values
        let rollouts = linkedRollouts(experiments)
        linked.rollouts = rollouts.values
        linked.flags = linkedFlags(experiments, rollouts, linked.holdouts)
        elements.areUnique = areUnique(linked)
        linked.elements = elements
        return linked
    }

    /// Whether no experiment, flag or variation was replaced by a later one with the same key or id.
    private func areUnique(_ linked: Linked) -> Bool {
        let variationCount = linked.experiments.reduce(0) { $0 + $1.variations.count }
        return linked.experiments.count == elements.experiments.count && linked.flags.count == elements.flags.count
            && Set(linked.experiments.lazy.map(\.key)).count == linked.experiments.count
            && elements.variableValues.count == variationCount
    }

    /// Compiles the conditions of all audiences, except those that are the same in the former datafile.
    private mutating func compileConditions() {
        let known = Dictionary((former?.audiences ?? []).map { ($0.id, $0) }, uniquingKeysWith: { $1 })
        for audience in model.audiences {
            if known[audience.id]?.conditions == audience.conditions {
                elements.conditions[audience.id] = former?.elements.conditions[audience.id]
            } else {
                elements.conditions[audience.id] = Condition(audience: audience.conditions)
                    .cachedIfLarge(as: .audience(audience.id))
            }
        }
    }

    /// Users outside the traffic of an experiment of the type feature rollout get the variation of the flag's last
    /// delivery rule, within the experiment.
    private mutating func addEveryoneElseToFeatureRollouts(of flag: FlagModel) {
        guard let lastRule = model.rollouts[flag.rolloutID]?.last,
            let variation = experiments[lastRule]?.firstVariation
        else { return }
        for id in flag.experimentIDs where experiments[id]?.type == "fr" {
            experiments.update(id) { experiment in
                experiment.variationsForEveryoneElse.append(variation)
                // In a contextual bandit the gate decides who is in the traffic.
                guard experiment.gate == nil else { return }
                experiment.trafficAllocation.ranges.append(
                    TrafficAllocation.Range(entityID: variation.id, end: Bucketer.bucketCount)
                )
            }
            elements.variableValues[variation.id] = variation.variableValues
        }
    }

    /// - Parameter holdouts: their variations replace those of an experiment with the same key, as in Optimizely's
    ///   Python SDK.
    private func linkedExperiments(besides holdouts: [Holdout]) -> KeyedList<Experiment> {
        var variationsByKey: [Identifier: [Variation]] = [:]
        for experiment in experiments.values {
            variationsByKey[experiment.key] = experiment.variations
        }
        for experiment in experiments.values {
            variationsByKey[experiment.key, default: []] += experiment.variationsForEveryoneElse
        }
        for holdout in holdouts {
            variationsByKey[holdout.key] = holdout.variations
        }
        var linked = KeyedList<Experiment>()
        for experiment in experiments.values {
            if let unchanged = changes?.unchanged(experiment) {
                linked.set(experiment.id, unchanged)
                continue
            }
            let audience = Condition.ofExperiment(experiment.audienceConditions, audiences: elements.conditions)
            let new = Experiment(
                experiment, audience: audience, exclusionGroup: exclusionGroup(of: experiment),
                variationsOfKey: variationsByKey[experiment.key] ?? [])
            linked.set(experiment.id, new)
        }
        return linked
    }

    /// Returns the group of an experiment if the experiments of the group are mutually exclusive.
    private func exclusionGroup(of experiment: ExperimentModel) -> Group? {
        Group.excludes(policy: experiment.groupPolicy) ? experiment.groupID.flatMap { model.groups[$0] } : nil
    }

    private func linkedRollouts(_ experiments: KeyedList<Experiment>) -> KeyedList<Rollout> {
        var linked = KeyedList<Rollout>()
        for (id, rules) in zip(model.rollouts.keys, model.rollouts.values) {
            linked.set(id, Rollout(id: id, rules: rules.compactMap { experiments[$0] }))
        }
        return linked
    }

    private func linkedFlags(
        _ experiments: KeyedList<Experiment>, _ rollouts: KeyedList<Rollout>, _ holdouts: [Holdout]
    ) -> [Flag] {
        let holdoutVariations = holdouts.flatMap(\.variations)
        return model.flags.values.map { flag in
            let rules = flag.experimentIDs.compactMap { experiments[$0] }
            let rollout = rollouts[flag.rolloutID]
            return changes?.unchanged(flag, rules, rollout)
                ?? Flag(
                    flag, experiments: rules, rollout: rollout, holdoutVariations: holdoutVariations,
                    variableValues: elements.variableValues)
        }
    }
}

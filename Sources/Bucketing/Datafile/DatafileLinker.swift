import JSON

/// Resolves the ids in a datafile and compiles its conditions. Reuses unchanged elements of the former datafile.
struct DatafileLinker {
    private let model: DatafileModel
    private let former: Datafile?
    private let changes: DatafileChanges?
    /// The experiments of the model. Feature rollouts also have the variation for everyone else of their flag.
    private var experiments: KeyedList<ExperimentModel>
    private var elements = DatafileElements()

    /// The elements of a datafile, linked.
    struct Linked {
        var experiments: [Experiment] = []
        var flags: [Flag] = []
        var rollouts: [Rollout] = []
        var holdouts: [Holdout] = []
        var mentions = Mentions()
        var hasLargeAudiences = false
        var elements = DatafileElements()
    }

    /// - Parameter changes: what of the model differs from a former datafile; `nil` if there is none.
    init(_ model: DatafileModel, _ changes: DatafileChanges?) {
        self.model = model
        self.changes = changes
        former = changes?.former
        experiments = model.experiments
        (elements.experiments, elements.flags) = (model.readExperiments, model.readFlags)
    }

    mutating func link() -> Linked {
        var linked = Linked()
        compileConditions()
        for condition in elements.conditions.values { condition.collectMentions(into: &linked.mentions) }
        linked.hasLargeAudiences =
            !linked.mentions.segments.isEmpty || elements.conditions.values.contains { $0.isLarge }
        for variation in experiments.values.lazy.flatMap(\.variations) {
            elements.texts[variation.id] = variation.variableValues
        }
        for flag in model.flags.values { addEveryoneElseToFeatureRollouts(of: flag) }
        linked.holdouts = model.holdouts.map { Holdout($0, audiences: elements.conditions) }
        let experiments = linkedExperiments(besides: linked.holdouts)
        linked.experiments = experiments.values
        let rollouts = linkedRollouts(experiments)
        linked.rollouts = rollouts.values
        let holdoutVariations = linked.holdouts.flatMap(\.variations)
        linked.flags = model.flags.values.map { flag in
            let rules = flag.experimentIDs.compactMap { experiments[$0] }
            let rollout = rollouts[flag.rolloutID]
            return changes?.unchanged(flag, rules, rollout)
                ?? Flag(
                    flag, experiments: rules, rollout: rollout, holdoutVariations: holdoutVariations,
                    texts: elements.texts)
        }
        elements.areUnique =
            experiments.values.count == elements.experiments.count && linked.flags.count == elements.flags.count
            && Set(experiments.values.lazy.map(\.key)).count == experiments.values.count
            && elements.texts.count == experiments.values.reduce(0) { $0 + $1.variations.count }
        linked.elements = elements
        return linked
    }

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
                // A contextual bandit decides its traffic itself.
                guard experiment.gate == nil else { return }
                experiment.trafficAllocation.ranges.append(
                    TrafficAllocation.Range(entityID: variation.id, end: Bucketer.bucketCount)
                )
            }
            elements.texts[variation.id] = variation.variableValues
        }
    }

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
            linked.set(
                experiment.id,
                changes?.unchanged(experiment)
                    ?? Experiment(
                        experiment,
                        audience: Condition.ofExperiment(
                            experiment.audienceConditions, audiences: elements.conditions),
                        exclusionGroup: exclusionGroup(of: experiment),
                        variationsOfKey: variationsByKey[experiment.key] ?? []))
        }
        return linked
    }

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
}

import Bucketing
import JSON

/// A variation id that several served experiments share, and all their values, in the order of the datafile.
///
/// SDKs look up values by variation id alone, so the last experiment with the id wins. It therefore lists the values of
/// all these experiments, and each flag finds its own value by the id of its variable.
struct SharedVariation: Sendable, Equatable {
    var lastExperiment: Identifier
    var values: [JSONValue]
}

/// The ids of the variations of all experiments.
struct VariationIDs: Sendable, Equatable {
    private var counts: [Identifier: Int] = [:]
    /// Whether several variations have one id.
    var hasShared: Bool { repeated > 0 }
    private var repeated = 0

    init() {}

    init(_ experiments: DefinitionList<ExperimentDefinition>) {
        for id in experiments.map({ $0.variations.map(\.id) }).joined() { add(id) }
    }

    mutating func replace(_ former: ExperimentDefinition?, with experiment: ExperimentDefinition?) {
        guard former?.variations.map(\.id) != experiment?.variations.map(\.id) else { return }
        for variation in former?.variations ?? [] {
            let count = (counts[variation.id] ?? 1) - 1
            counts[variation.id] = count == 0 ? nil : count
            if count > 0 { repeated -= 1 }
        }
        for variation in experiment?.variations ?? [] { add(variation.id) }
    }

    private mutating func add(_ id: Identifier) {
        counts[id, default: 0] += 1
        if counts[id] != 1 { repeated += 1 }
    }
}

extension ProjectDefinitions {
    // MARK: Holdouts

    /// Writes the holdouts of the API behind those that a datafile brought. What they keep users out of depends on flags.
    mutating func writeHoldouts(since former: ProjectDefinitions?) {
        let gone = (former?.holdouts.filter { holdouts[$0.key] == nil }) ?? []
        guard !gone.isEmpty || !holdouts.isEmpty else { return }
        for name in HoldoutDefinition.lists {
            let others = (root[name]?.array ?? []).filter { !HoldoutDefinition.isOwn($0) }
            var own: [JSONValue] = []
            for var holdout in holdouts where holdout.list == name {
                own.append(.object(holdout.write(rules: rules(of: holdout))))
                holdouts.set(holdout)
            }
            if root[name] != nil || !own.isEmpty { root[name] = .array(others + own) }
        }
        audiences.replace(gone.map { (Identifier($0.audienceID), nil) })
        audiences.replace(
            holdouts.compactMap { holdout in
                guard let audience = holdout.audience, former?.holdouts[holdout.key]?.audience != audience else {
                    return nil
                }
                let id = holdout.audienceID
                // Not `nil`, which would be the JSON value null.
                var element: JSONValue?
                if !audience.isNull {
                    element = Self.audience(id, of: holdout.key, ConditionDialect.datafileForm(of: audience))
                }
                return (Identifier(id), element)
            })
    }

    /// Returns the ids of the experiments and deliveries of the flags that a holdout names.
    private func rules(of holdout: HoldoutDefinition) -> [Identifier] {
        (holdout.flags ?? []).compactMap { flags[$0] }.flatMap { flag in
            let id = Identifier(flag.rolloutID)
            let rollout = rollouts.last { $0.object?.identifier("id") == id }?.object
            return experiments(of: flag).map(\.id)
                + (rollout?.objects("experiments").compactMap { $0.identifier("id") } ?? [])
        }
    }

    // MARK: Flags

    /// The flags that say something about their experiments: what they serve, what their rules are, and that they are
    /// off.
    var flagsByExperiment: [Identifier: [FlagDefinition]] {
        var owners: [Identifier: [FlagDefinition]] = [:]
        for flag in flags {
            for experiment in experiments(of: flag) { owners[experiment.id, default: []].append(flag) }
        }
        return owners
    }

    /// - Parameter affected: the experiments that are written next.
    mutating func write(
        _ changed: [FlagDefinition], of affected: Set<Identifier>, replacing former: ProjectDefinitions?
    ) {
        var newRollouts: [(id: Identifier, element: JSONValue?)] = []
        var newAudiences: [(id: Identifier, element: JSONValue?)] = []
        for var flag in changed {
            let experiments = experiments(of: flag)
            if let version = Int64(revision) { flag.version = version }
            if flag.rules != nil { flag.tags = flag.tags ?? [] }
            var hasDeliveries = true
            if case .datafile = flag.content {
            } else {
                let rollout = flag.rollout(experiments)
                hasDeliveries = rollout != nil
                newRollouts.append((Identifier(flag.rolloutID), rollout))
            }
            flag.source = flag.json(experiments, hasDeliveries: hasDeliveries)
            flags.set(flag)
            guard let rules = flag.rules else { continue }
            for rule in former?.flags[flag.key]?.rules?.rules ?? [] {
                newAudiences.append((Identifier(flag.audienceID(rule.key)), nil))
            }
            var excluded: [JSONValue] = []
            for rule in rules.rules {
                let (audience, experiment) = (rule.datafileAudience, self.experiments[rule.key])
                // In the model of the SDKs a flag's experiments come before its deliveries.
                if rule.delivery == nil, var experiment, affected.contains(experiment.id) {
                    let conditions = (audience.map { [$0] } ?? []) + excluded
                    experiment.audience =
                        conditions.count > 1 ? .array(["and"] + conditions) : conditions.first ?? .null
                    self.experiments.set(experiment)
                }
                guard rule.delivery != nil || experiment?.winner != nil else { continue }
                excluded.append(audience.map { AudienceExclusion.outside($0) } ?? AudienceExclusion.nobody)
                if let audience {
                    let id = flag.audienceID(rule.key)
                    newAudiences.append((Identifier(id), Self.audience(id, of: rule.key, audience)))
                }
            }
        }
        rollouts.replace(newRollouts)
        audiences.replace(newAudiences)
    }

    private static func audience(_ id: String, of key: Identifier, _ conditions: JSONValue) -> JSONValue {
        ["id": .string(id), "name": .string("of \(key)"), "conditions": conditions]
    }

    /// Removes the deliveries of flags that are gone.
    mutating func removeDeliveries(of former: ProjectDefinitions?) {
        guard let former else { return }
        let known =
            isEdit(of: former) ? former.flags.all(naming: [], orKeyed: Array(flags.touched)) : Array(former.flags)
        let gone = known.filter { !flags.contains($0.key) }
        guard !gone.isEmpty else { return }
        let used = Set(flags.map(\.rolloutID))
        rollouts.replace(gone.filter { !used.contains($0.rolloutID) }.map { (Identifier($0.rolloutID), nil) })
        let rules = gone.flatMap { flag in (flag.rules?.rules ?? []).map { flag.audienceID($0.key) } }
        audiences.replace(rules.map { (Identifier($0), nil) })
    }

    // MARK: Experiments

    mutating func write(_ affected: Set<Identifier>) {
        var newAudiences: [(id: Identifier, element: JSONValue?)] = []
        for var experiment in experiments.all(naming: Array(affected)) {
            let flags = owners(of: experiment.id)
            var setting = ExperimentDefinition.Setting(isPaused: flags.contains { !$0.isEnabled })
            if let flag = flags.first(where: { $0.rules != nil }) {
                setting.addValues = { flag.addValue(to: &$0, of: $1.key) }
            } else if let flag = servingFlag(of: experiment, flags) {
                let (shared, id) = (sharedVariations, experiment.id)
                setting.addValues = { variation, definition in
                    flag.addValue(to: &variation, of: definition.key)
                    if let shared = shared[definition.id], shared.lastExperiment == id {
                        variation["variables"] = .array(shared.values)
                    }
                }
            }
            experiment.write(setting)
            experiments.set(experiment)
            guard let audience = experiment.audience else { continue }
            let id = experiment.audienceID
            var element: JSONValue?
            if !audience.isNull {
                element = Self.audience(id, of: experiment.key, ConditionDialect.datafileForm(of: audience))
            }
            newAudiences.append((Identifier(id), element))
        }
        audiences.replace(newAudiences)
    }

    /// Returns the flag that serves an experiment, unless another flag has the experiment.
    private func servingFlag(of experiment: ExperimentDefinition, _ flags: [FlagDefinition]) -> FlagDefinition? {
        guard isServed(experiment), flags.allSatisfy({ $0.content == .experiment }) else { return nil }
        return flags.first
    }

    private static func value(of variation: ExperimentDefinition.Variation, variableID: String) -> JSONValue {
        ["id": .string(variableID), "value": JSONValue(variation.key)]
    }

    func sharedVariations(_ owners: [Identifier: [FlagDefinition]]) -> [Identifier: SharedVariation] {
        var known: Set<Identifier> = []
        var shared: [Identifier: SharedVariation] = [:]
        for variation in experiments.lazy.flatMap(\.variations) where !known.insert(variation.id).inserted {
            shared[variation.id] = SharedVariation(lastExperiment: "", values: [])
        }
        guard !shared.isEmpty else { return [:] }
        for experiment in experiments {
            guard let flag = servingFlag(of: experiment, owners[experiment.id] ?? []) else { continue }
            for variation in experiment.variations {
                shared[variation.id]?.lastExperiment = experiment.id
                shared[variation.id]?.values.append(Self.value(of: variation, variableID: flag.variableID))
            }
        }
        return shared
    }
}

extension [JSONValue] {
    /// Replaces the elements with the ids in place, appends those that are new, and removes those that are `nil`. The last
    /// change of an id counts.
    fileprivate mutating func replace(_ changes: [(id: Identifier, element: JSONValue?)]) {
        guard !changes.isEmpty else { return }
        var pending = Dictionary(changes.map { ($0.id, $0.element) }, uniquingKeysWith: { $1 })
        self = compactMap { element in
            guard let id = element.object?.identifier("id"), let index = pending.index(forKey: id) else {
                return element
            }
            return pending.remove(at: index).value
        }
        for (id, _) in changes {
            if let index = pending.index(forKey: id), let element = pending.remove(at: index).value { append(element) }
        }
    }
}

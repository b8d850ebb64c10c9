import Bucketing
import Definitions
import JSON

/// An id that variations of several served experiments have, and the values that they give, in the order of the datafile.
///
/// SDKs keep the values of a variation by its id alone, so where experiments share one, those of the last experiment
/// hold. So the last one has the values of all: a flag finds its own by its variable.
struct SharedVariation: Sendable, Equatable {
    var lastExperiment: Identifier
    var values: [JSONValue]
}

extension ProjectDefinitions {
    /// Generates the datafile: writes what has changed and what depends on it, and leaves everything else as it is. Each
    /// flag that has changed, or whose experiments have, gets the revision as its version.
    ///
    /// - Parameter former: the definitions before the change.
    public mutating func generate(since former: ProjectDefinitions?) {
        // Where the order counts, as for variations that share an id, it must be the one that SDKs read.
        let ranks = Dictionary(groups.enumerated().map { ($1.id, $0) }, uniquingKeysWith: { $1 })
        experiments.sort { $0.groupID.flatMap { ranks[$0] } ?? -1 }
        fixPlans(since: former)
        noteRuns(since: former)
        let changed = Set(experiments.lazy.filter { former?.experiments[$0.key] != $0 }.map(\.id))
        // Flags deliver what was concluded, and other experiments of theirs come after it.
        let concluded = Set(
            experiments.lazy.filter {
                changed.contains($0.id) && former?.experiments[$0.key]?.winner != $0.winner
            }.map(\.id))
        var affected = changed
        var affectedFlags: [FlagDefinition] = []
        for flag in flags {
            let ids = experiments(of: flag).map(\.id)
            let isChanged = former?.flags[flag.key] != flag || ids.contains(where: concluded.contains)
            if isChanged { affected.formUnion(ids) }
            if flag.isAnnotated, isChanged || ids.contains(where: changed.contains) { affectedFlags.append(flag) }
        }
        let owners = flagsByExperiment
        let shared = sharedVariations(owners)
        if shared != sharedVariations {
            let ids = Set(shared.keys).union(sharedVariations.keys)
            for experiment in experiments where experiment.variations.contains(where: { ids.contains($0.id) }) {
                affected.insert(experiment.id)
            }
            sharedVariations = shared
        }
        write(affectedFlags, of: affected, replacing: former)
        write(affected, owners)
        removeDeliveries(of: former)
        var outside: [JSONValue] = []
        var grouped: [Identifier: [JSONValue]] = [:]
        for experiment in experiments {
            if let id = experiment.groupID {
                grouped[id, default: []].append(.object(experiment.source))
            } else {
                outside.append(.object(experiment.source))
            }
        }
        writeHoldouts(since: former)
        root["experiments"] = .array(outside)
        root["groups"] = .array(groups.map { $0.json(grouped[$0.id] ?? []) })
        for (name, list) in [
            ("featureFlags", flags.map { .object($0.source) }), ("rollouts", rollouts), ("typedAudiences", audiences),
        ] where root[name] != nil || !list.isEmpty {
            root[name] = .array(list)
        }
        root[Annotations.member] = ownMembers(changed)
    }

    /// Notes which experiments are paused, or have a flag that is off, before they have ever run.
    private mutating func noteRuns(since former: ProjectDefinitions?) {
        let running = ExperimentStatus.running.rawValue
        for var experiment in experiments
        where former?.experiments[experiment.key].map({ $0.isDraft || $0.hasNeverRun }) ?? true {
            var neverRan = experiment.status == ExperimentStatus.paused.rawValue
            if experiment.status == running { neverRan = flags(ofExperiment: experiment.id).contains { !$0.isEnabled } }
            guard neverRan != experiment.hasNeverRun else { continue }
            experiment.hasNeverRun = neverRan
            experiments.set(experiment)
        }
    }

    /// What people say about experiments, by their ids, and the metrics, which SDKs do not get, and how long assignments
    /// last; `nil` if there is nothing.
    ///
    /// - Parameter changed: the experiments of which it is written. That of the others is as it was.
    private func ownMembers(_ changed: Set<Identifier>) -> JSONValue? {
        let written = writtenDetails
        var members = JSONObject()
        var details = JSONObject()
        for experiment in experiments {
            guard changed.contains(experiment.id) else {
                details[experiment.id.string] = written?[experiment.id.string]
                continue
            }
            var object = experiment.details.stored
            object["conclusion"] = experiment.conclusion?.details
            if !object.isEmpty { details[experiment.id.string] = .object(object) }
        }
        if !details.isEmpty { members["experiments"] = .object(details) }
        var metrics = JSONObject()
        for metric in self.metrics { metrics[metric.key.string] = .object(metric.json) }
        if !metrics.isEmpty { members["metrics"] = .object(metrics) }
        members[AssignmentLifetime.member] = assignmentLifetime.map { .string($0.text) }
        return members.isEmpty ? nil : .object(members)
    }

    // MARK: Holdouts

    /// Writes the holdouts of the API behind those that a datafile brought. What they keep users out of depends on flags.
    private mutating func writeHoldouts(since former: ProjectDefinitions?) {
        let gone = (former?.holdouts.filter { holdouts[$0.key] == nil }) ?? []
        guard !gone.isEmpty || !holdouts.isEmpty else { return }
        for name in HoldoutDefinition.lists {
            let others = (root[name]?.array ?? []).filter { !HoldoutDefinition.isOwn($0) }
            let own = holdouts.filter { $0.list == name }.map { JSONValue.object($0.json(rules: rules(of: $0))) }
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
    private mutating func write(
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
    private mutating func removeDeliveries(of former: ProjectDefinitions?) {
        let gone = (former?.flags.filter { flags[$0.key] == nil }) ?? []
        guard !gone.isEmpty else { return }
        let used = Set(flags.map(\.rolloutID))
        rollouts.replace(gone.filter { !used.contains($0.rolloutID) }.map { (Identifier($0.rolloutID), nil) })
        let rules = gone.flatMap { flag in (flag.rules?.rules ?? []).map { flag.audienceID($0.key) } }
        audiences.replace(rules.map { (Identifier($0), nil) })
    }

    // MARK: Experiments

    private mutating func write(_ affected: Set<Identifier>, _ owners: [Identifier: [FlagDefinition]]) {
        var newAudiences: [(id: Identifier, element: JSONValue?)] = []
        for var experiment in experiments where affected.contains(experiment.id) {
            let flags = owners[experiment.id] ?? []
            var setting = ExperimentDefinition.Setting(isPaused: flags.contains { !$0.isEnabled })
            if let flag = flags.first(where: { $0.rules != nil }) {
                setting.addValues = { flag.addValue(to: &$0, of: $1.key) }
            } else if let flag = servingFlag(of: experiment, flags) {
                let shared = sharedVariations
                setting.addValues = { variation, definition in
                    flag.addValue(to: &variation, of: definition.key)
                    if let shared = shared[definition.id], shared.lastExperiment == experiment.id {
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

    private func sharedVariations(_ owners: [Identifier: [FlagDefinition]]) -> [Identifier: SharedVariation] {
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

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
    /// A datafile that was generated. Only copies of the definitions that it was generated from have it.
    final class Generation: Sendable, Equatable {
        static func == (left: Generation, right: Generation) -> Bool { left === right }
    }

    /// Generates the datafile: writes what has changed and what depends on it, and leaves everything else as it is. Each
    /// flag that has changed, or whose experiments have, gets the revision as its version.
    ///
    /// - Parameter former: the definitions before the change. If these are a copy of them that was changed since, only what
    ///   was touched is compared.
    public mutating func generate(since former: ProjectDefinitions?) {
        let isEdit = isEdit(of: former)
        let keepsOrder = sortExperiments(since: isEdit ? former : nil)
        fixPlans(since: former)
        noteRuns(since: former)
        let changed = editedExperiments(since: former).filter { experiments.differs($0.key, from: former?.experiments) }
        let changedIDs = Set(changed.map(\.id))
        // Flags deliver what was concluded, and other experiments of theirs come after it.
        let concluded = Set(changed.filter { former?.experiments[$0.key]?.winner != $0.winner }.map(\.id))
        var affected = changedIDs
        var affectedFlags: [FlagDefinition] = []
        let keys = changed.map(\.key)
        for flag in isEdit ? flags.all(naming: Array(changedIDs) + keys, orKeyed: keys + flags.touched) : Array(flags) {
            let ids = experiments(of: flag).map(\.id)
            let isChanged = flags.differs(flag.key, from: former?.flags) || ids.contains(where: concluded.contains)
            if isChanged { affected.formUnion(ids) }
            if flag.isAnnotated, isChanged || ids.contains(where: changedIDs.contains) { affectedFlags.append(flag) }
        }
        if isEdit {
            for key in experiments.touched { variationIDs.replace(former?.experiments[key], with: experiments[key]) }
        } else {
            variationIDs = VariationIDs(experiments)
        }
        let shared = variationIDs.hasShared ? sharedVariations(flagsByExperiment) : [:]
        if shared != sharedVariations {
            let ids = Set(shared.keys).union(sharedVariations.keys)
            for experiment in experiments where experiment.variations.contains(where: { ids.contains($0.id) }) {
                affected.insert(experiment.id)
            }
            sharedVariations = shared
        }
        write(affectedFlags, of: affected, replacing: former)
        write(affected)
        removeDeliveries(of: former)
        writeHoldouts(since: former)
        writeLists(since: isEdit && keepsOrder ? former : nil)
        root[Annotations.member] = ownMembers(
            experiments.all(naming: Array(changedIDs)), isEdit: isEdit, keepsOrder: keepsOrder)
        // As they are read.
        holdouts.sort { $0.list == HoldoutDefinition.lists.first ? 0 : 1 }
        generation = Generation()
        experiments.forgetChanges()
        flags.forgetChanges()
        groups.forgetChanges()
        metrics.forgetChanges()
    }

    /// Puts the written elements into the datafile.
    ///
    /// - Parameter former: the definitions before an edit that keeps the order of the experiments; then what was touched is
    ///   replaced in its place if all others have theirs.
    private mutating func writeLists(since former: ProjectDefinitions?) {
        let changedExperiments = former.flatMap { experiments.changedPlaces(since: $0.experiments) }
        if let changedExperiments, changedExperiments.allSatisfy({ $0.element.groupID == nil }) {
            replace("experiments", changedExperiments.map { ($0.index, $0.element.source) })
        } else {
            let (outside, grouped) = experimentsByGroup { JSONValue.object($0.source) }
            root["experiments"] = .array(outside)
            root["groups"] = .array(groups.map { $0.json(grouped[$0.id] ?? []) })
        }
        if let changedFlags = former.flatMap({ flags.changedPlaces(since: $0.flags) }) {
            replace("featureFlags", changedFlags.map { ($0.index, $0.element.source) })
        } else if root["featureFlags"] != nil || !flags.isEmpty {
            root["featureFlags"] = .array(flags.map { .object($0.source) })
        }
        for (name, list) in [("rollouts", rollouts), ("typedAudiences", audiences)]
        where root[name] != nil || !list.isEmpty {
            root[name] = .array(list)
        }
    }

    private mutating func replace(_ name: String, _ changes: [(index: Int, object: JSONObject)]) {
        guard !changes.isEmpty, var list = root[name]?.array else { return }
        for (index, object) in changes where list.indices.contains(index) { list[index] = .object(object) }
        root[name] = .array(list)
    }

    /// Whether anything differs from former definitions, of which these are probably an edit: then only what was touched is
    /// compared.
    func hasChanges(since former: ProjectDefinitions) -> Bool {
        guard isEdit(of: former) else { return self != former }
        return experiments.hasChanges(since: former.experiments) || flags.hasChanges(since: former.flags)
            || groups.hasChanges(since: former.groups) || metrics.hasChanges(since: former.metrics)
            || holdouts != former.holdouts || rollouts != former.rollouts || audiences != former.audiences
            || assignmentLifetime != former.assignmentLifetime || sdkKey != former.sdkKey || root != former.root
    }

    /// Whether these definitions are a copy of former ones that was changed, so that what was touched is known.
    func isEdit(of former: ProjectDefinitions?) -> Bool { generation != nil && generation === former?.generation }

    /// Puts the experiments in the order that SDKs read: where it counts, as for variations that share an id, it must be that.
    ///
    /// - Parameter former: the definitions before an edit; `nil` if the order is not known.
    /// - Returns: whether all have the place that they had.
    private mutating func sortExperiments(since former: ProjectDefinitions?) -> Bool {
        if let former, groups.touched.isEmpty {
            let isKept = experiments.touched.allSatisfy {
                former.experiments.contains($0) && former.experiments[$0]?.groupID == experiments[$0]?.groupID
            }
            if isKept { return true }
        }
        let ranks = Dictionary(groups.enumerated().map { ($1.id, $0) }, uniquingKeysWith: { $1 })
        experiments.sort { $0.groupID.flatMap { ranks[$0] } ?? -1 }
        return false
    }

    /// Returns the experiments that may differ from former definitions.
    func editedExperiments(since former: ProjectDefinitions?) -> [ExperimentDefinition] {
        isEdit(of: former) ? experiments.touchedElements : Array(experiments)
    }

    /// Notes which experiments are paused, or have a flag that is off, before they have ever run.
    private mutating func noteRuns(since former: ProjectDefinitions?) {
        let running = ExperimentStatus.running.rawValue
        let keys = flags.touched.compactMap { flags[$0] }.flatMap { experiments(of: $0) }.map(\.key)
        let candidates =
            isEdit(of: former)
            ? experiments.all(naming: [], orKeyed: keys + experiments.touched) : Array(experiments)
        for var experiment in candidates
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
    private func ownMembers(_ changed: [ExperimentDefinition], isEdit: Bool, keepsOrder: Bool) -> JSONValue? {
        let written = root[Annotations.member]?.object
        var members = JSONObject()
        let details = details(changed, in: written?["experiments"]?.object ?? JSONObject(), keepsOrder: keepsOrder)
        if !details.isEmpty { members["experiments"] = .object(details) }
        if isEdit, self.metrics.touched.isEmpty {
            members["metrics"] = written?["metrics"]
        } else {
            let metrics = self.metrics.map { JSONObject.Member(key: $0.key.string, value: .object($0.json)) }
            if !metrics.isEmpty { members["metrics"] = .object(JSONObject(metrics)) }
        }
        members[AssignmentLifetime.member] = assignmentLifetime.map { .string($0.text) }
        return members.isEmpty ? nil : .object(members)
    }

    /// - Parameter written: what is written of all experiments.
    private func details(_ changed: [ExperimentDefinition], in written: JSONObject, keepsOrder: Bool) -> JSONObject {
        var details: [Identifier: JSONObject] = [:]
        for experiment in changed {
            var object = experiment.details.stored
            object["conclusion"] = experiment.conclusion?.details
            details[experiment.id] = object
        }
        if keepsOrder, details.allSatisfy({ (written[$0.key.string] == nil) == $0.value.isEmpty }) {
            var all = written
            for (id, object) in details where !object.isEmpty { all[id.string] = .object(object) }
            return all
        }
        // In the order of the experiments.
        return JSONObject(
            experiments.map(\.id).compactMap { id in
                guard let object = details[id] else {
                    return written[id.string].map { JSONObject.Member(key: id.string, value: $0) }
                }
                return object.isEmpty ? nil : JSONObject.Member(key: id.string, value: .object(object))
            })
    }

    // MARK: Holdouts

    /// Writes the holdouts of the API behind those that a datafile brought. What they keep users out of depends on flags.
    private mutating func writeHoldouts(since former: ProjectDefinitions?) {
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

    private mutating func write(_ affected: Set<Identifier>) {
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

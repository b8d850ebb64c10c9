import Bucketing
import JSON

// How the elements of the datafile are written. ``ProjectDefinitions/generate(since:)`` calls these functions in the
// order: flags, experiments, deliveries of removed flags, holdouts. The audience of an experiment that is a rule
// depends on its flag, and the rules of a holdout depend on the rollouts.

/// A change of an element in a list of the datafile.
private struct ListChange {
    let id: Identifier
    /// The new element; `nil` to remove the element.
    let element: JSONValue?
}

extension ProjectDefinitions {
    // MARK: Flags

    /// Writes flags, their rollouts, and the audiences of their deliveries. Also sets the audiences of the experiments
    /// that are rules; ``writeExperiments(_:)`` must follow.
    ///
    /// - Parameters:
    ///   - affected: the ids of the experiments that are written next.
    ///   - former: the definitions before the change.
    mutating func writeFlags(
        _ changed: [FlagDefinition], affected: Set<Identifier>, replacing former: ProjectDefinitions?
    ) {
        var rolloutChanges: [ListChange] = []
        var audienceChanges: [ListChange] = []
        for flag in changed {
            if let change = write(flag) { rolloutChanges.append(change) }
            guard let rules = flag.rules else { continue }
            for rule in former?.flags[flag.key]?.rules?.rules ?? [] {
                audienceChanges.append(ListChange(id: Identifier(flag.audienceID(rule.key)), element: nil))
            }
            audienceChanges += setAudiences(of: rules, in: flag, affected: affected)
        }
        rollouts.replace(rolloutChanges)
        audiences.replace(audienceChanges)
    }

    /// Writes a flag.
    ///
    /// - Returns: the change of its rollout; `nil` if an uploaded datafile defines the rollout.
    private mutating func write(_ flag: FlagDefinition) -> ListChange? {
        var flag = flag
        let experiments = experiments(of: flag)
        if let version = Int64(revision) { flag.version = version }
        if flag.rules != nil { flag.tags = flag.tags ?? [] }
        var change: ListChange?
        var hasDeliveries = true
        if case .datafile = flag.content {
            // The rollout stays as the datafile has it.
        } else {
            let rollout = flag.rollout(experiments)
            hasDeliveries = rollout != nil
            change = ListChange(id: Identifier(flag.rolloutID), element: rollout)
        }
        flag.source = flag.json(experiments, hasDeliveries: hasDeliveries)
        flags.set(flag)
        return change
    }

    /// Sets the audience of each experiment among the rules of a flag, and returns the audiences of its deliveries.
    ///
    /// SDKs try all experiments of a flag before its deliveries. So if a delivery comes first in the rules, the
    /// audiences of the experiments after it exclude the users of the delivery.
    private mutating func setAudiences(
        of rules: FlagDefinition.Rules, in flag: FlagDefinition, affected: Set<Identifier>
    ) -> [ListChange] {
        var changes: [ListChange] = []
        /// The conditions that exclude the users of the deliveries so far.
        var exclusions: [JSONValue] = []
        for rule in rules.rules {
            let audience = rule.datafileAudience
            let experiment = experiments[rule.key]
            if rule.delivery == nil, var experiment, affected.contains(experiment.id) {
                let conditions = (audience.map { [$0] } ?? []) + exclusions
                experiment.audience = conditions.count > 1 ? .array(["and"] + conditions) : conditions.first ?? .null
                experiments.set(experiment)
            }
            // A concluded experiment delivers its winner.
            guard rule.delivery != nil || experiment?.winner != nil else { continue }
            exclusions.append(audience.map { AudienceExclusion.outside($0) } ?? AudienceExclusion.nobody)
            if let audience {
                let id = flag.audienceID(rule.key)
                changes.append(ListChange(id: Identifier(id), element: Self.audience(id, of: rule.key, audience)))
            }
        }
        return changes
    }

    /// Removes the rollouts and the audiences of flags that are gone.
    mutating func removeDeliveries(of former: ProjectDefinitions?) {
        guard let former else { return }
        let candidates =
            isEdit(of: former) ? former.flags.all(naming: [], orKeyed: Array(flags.touched)) : Array(former.flags)
        let removed = candidates.filter { !flags.contains($0.key) }
        guard !removed.isEmpty else { return }
        let usedRollouts = Set(flags.map(\.rolloutID))
        let unusedRollouts = removed.map(\.rolloutID).filter { !usedRollouts.contains($0) }
        rollouts.replace(unusedRollouts.map { ListChange(id: Identifier($0), element: nil) })
        let audienceIDs = removed.flatMap { flag in (flag.rules?.rules ?? []).map { flag.audienceID($0.key) } }
        audiences.replace(audienceIDs.map { ListChange(id: Identifier($0), element: nil) })
    }

    // MARK: Experiments

    /// Writes experiments and their audiences.
    ///
    /// - Parameter affected: the ids of the experiments.
    mutating func writeExperiments(_ affected: Set<Identifier>) {
        var audienceChanges: [ListChange] = []
        for var experiment in experiments.all(naming: Array(affected)) {
            experiment.write(setting(of: experiment))
            experiments.set(experiment)
            guard let audience = experiment.audience else { continue }
            audienceChanges.append(Self.change(ofAudience: experiment.audienceID, of: experiment.key, to: audience))
        }
        audiences.replace(audienceChanges)
    }

    /// Returns what the flags of an experiment determine.
    private func setting(of experiment: ExperimentDefinition) -> ExperimentDefinition.Setting {
        let flags = owners(of: experiment.id)
        var setting = ExperimentDefinition.Setting(isPaused: flags.contains { !$0.isEnabled })
        if let flag = flags.first(where: { $0.rules != nil }) {
            setting.addValues = { variation, definition in flag.addValue(to: &variation, of: definition.key) }
        } else if let flag = servingFlag(of: experiment, flags) {
            let shared = sharedVariations
            let id = experiment.id
            setting.addValues = { variation, definition in
                flag.addValue(to: &variation, of: definition.key)
                if let shared = shared[definition.id], shared.lastExperiment == id {
                    variation["variables"] = .array(shared.values)
                }
            }
        }
        return setting
    }

    // MARK: Holdouts

    /// Writes the holdouts of the API and their audiences. In the datafile they follow the holdouts of an upload. All
    /// are written, because the rules of a holdout depend on flags, which may have changed.
    mutating func writeHoldouts(since former: ProjectDefinitions?) {
        let removed = (former?.holdouts.filter { holdouts[$0.key] == nil }) ?? []
        guard !removed.isEmpty || !holdouts.isEmpty else { return }
        for name in HoldoutDefinition.lists {
            let others = (root[name]?.array ?? []).filter { !HoldoutDefinition.isOwn($0) }
            var own: [JSONValue] = []
            for var holdout in holdouts where holdout.list == name {
                own.append(.object(holdout.write(rules: rules(of: holdout))))
                holdouts.set(holdout)
            }
            if root[name] != nil || !own.isEmpty { root[name] = .array(others + own) }
        }
        audiences.replace(removed.map { ListChange(id: Identifier($0.audienceID), element: nil) })
        var audienceChanges: [ListChange] = []
        for holdout in holdouts {
            guard let audience = holdout.audience, former?.holdouts[holdout.key]?.audience != audience else { continue }
            audienceChanges.append(Self.change(ofAudience: holdout.audienceID, of: holdout.key, to: audience))
        }
        audiences.replace(audienceChanges)
    }

    /// Returns the ids of the experiments and delivery rules of the flags that a holdout names.
    private func rules(of holdout: HoldoutDefinition) -> [Identifier] {
        (holdout.flags ?? []).compactMap { flags[$0] }.flatMap { flag in
            let id = Identifier(flag.rolloutID)
            let rollout = rollouts.last { $0.object?.identifier("id") == id }?.object
            return experiments(of: flag).map(\.id)
                + (rollout?.objects("experiments").compactMap { $0.identifier("id") } ?? [])
        }
    }

    // MARK: Audiences

    /// Returns the change of the audience that belongs to an experiment or a holdout alone.
    ///
    /// - Parameter given: the conditions as they were given; null, which admits everybody, removes the audience.
    private static func change(ofAudience id: String, of key: Identifier, to given: JSONValue) -> ListChange {
        // A `nil` in a conditional expression would be the JSON value null.
        var element: JSONValue?
        if !given.isNull { element = audience(id, of: key, ConditionDialect.datafileForm(of: given)) }
        return ListChange(id: Identifier(id), element: element)
    }

    /// Returns an audience in the format of a datafile.
    private static func audience(_ id: String, of key: Identifier, _ conditions: JSONValue) -> JSONValue {
        ["id": .string(id), "name": .string("of \(key)"), "conditions": conditions]
    }
}

extension [JSONValue] {
    /// Replaces elements in their places, appends new ones, and removes others. If several changes have one id, the
    /// last one counts.
    fileprivate mutating func replace(_ changes: [ListChange]) {
        guard !changes.isEmpty else { return }
        var pending = Dictionary(changes.map { ($0.id, $0.element) }, uniquingKeysWith: { $1 })
        self = compactMap { element in
            guard let id = element.object?.identifier("id"), let index = pending.index(forKey: id) else {
                return element
            }
            return pending.remove(at: index).value
        }
        // The changes that are left are of elements that the list did not have.
        for change in changes {
            if let index = pending.index(forKey: change.id), let element = pending.remove(at: index).value {
                append(element)
            }
        }
    }
}

import Bucketing
import Definitions
public import JSON

// The elements of a project in the form of files; see ``DefinitionSet``.

extension ProjectDefinitions {
    /// Returns a group in the form of files; `nil` for a group of an uploaded datafile, which has no name.
    func element(of group: ExperimentGroup) -> DefinitionSet.Element? {
        guard let name = group.name else { return nil }
        var object = JSONObject()
        object["name"] = .string(name)
        object[DefinitionSet.allocation] = .array(
            group.allocation.ranges.map { range in
                let key = experiment(id: range.entityID)?.key
                return [
                    "experiment": key.map { JSONValue($0) } ?? .null, "end_of_range": .integer(Int64(range.end)),
                ]
            })
        return DefinitionSet.Element(key: Identifier(name), object: object)
    }

    /// Returns an experiment in the form of files. For a rule of a flag, only the members that the flag's element does
    /// not have.
    ///
    /// - Returns: `nil` if the experiment comes from an uploaded datafile, or if a rule has no further members.
    func listedObject(of experiment: ExperimentDefinition) -> JSONObject? {
        let group = group(of: experiment)
        guard experiments[experiment.key]?.id == experiment.id, group == nil || group?.name != nil else { return nil }
        let owners = flags(ofExperiment: experiment.id)
        guard owners.allSatisfy({ $0.rules != nil }) else { return nil }
        let isRule = !owners.isEmpty
        // An experiment that still names a flag is left over from a deleted one. One without a given audience has the
        // audiences of an uploaded datafile.
        guard isRule || experiment.flagKey == nil && experiment.audience != nil else { return nil }
        let object = file(of: experiment, isRule: isRule)
        // An object with a single member has only the key.
        return isRule && object.count == 1 ? nil : object
    }

    /// Returns an experiment in the form of files, even of one that is left out.
    ///
    /// - Parameter isRule: whether to leave out the members that the flag's element has.
    private func file(of experiment: ExperimentDefinition, isRule: Bool) -> JSONObject {
        var object = JSONObject()
        object["key"] = JSONValue(experiment.key)
        var excluded = experiment.namesThatChange
        if isRule, experiment.conclusion == nil { excluded.insert("status") }
        ExperimentView.members.writeFile(
            fileView(of: experiment), to: &object, isOwned: isRule, except: excluded)
        if let conclusion = experiment.conclusion {
            let shown = conclusion.description(of: experiment).object ?? JSONObject()
            object["conclusion"] = .object(shown.keeping(["winner", "reason"], evenNull: true))
        }
        let isGrouped = group(of: experiment) != nil
        object[DefinitionSet.allocation] = experiment.uncommonAllocation(isGrouped: isGrouped)?.json
        return object
    }

    /// Returns a flag in the form of files; `nil` if it has no members of its own, because an experiment or an uploaded
    /// datafile defines them all.
    func listedObject(of flag: FlagDefinition) -> JSONObject? {
        if case .datafile = flag.content { return nil }
        let object = file(of: flag)
        // An object with a single member has only the key.
        return object.count == 1 ? nil : object
    }

    private func file(of flag: FlagDefinition) -> JSONObject {
        var object = JSONObject()
        object["key"] = JSONValue(flag.key)
        var view = FlagView(flag)
        if let rules = flag.rules {
            view.type = rules.type
            view.variations = rules.variations
            view.rules = rules.rules.map { fileView(of: $0) }
            view.otherwise = rules.otherwise
        }
        FlagView.members.writeFile(view, to: &object, isOwned: flag.rules == nil)
        return object
    }

    /// Returns a rule with the experiment's members that a file has.
    private func fileView(of rule: FlagDefinition.Rule) -> FlagView.Rule {
        var choice: FlagView.Choice?
        if let delivery = rule.delivery {
            choice = .delivery(variation: delivery.variation, traffic: delivery.traffic)
        } else if let experiment = experiments[rule.key] {
            var view = fileView(of: experiment)
            let weights = experiment.split.weights
            view.variations = experiment.variations.map { .init(key: $0.key, weight: weights[$0.id] ?? 0) }
            var names = Set(FlagDefinition.experimentMembers.names).subtracting(experiment.namesThatChange)
            if experiment.conclusion != nil { names.remove("status") }
            choice = .experiment(Given(draft: view, names: names))
        }
        return FlagView.Rule(key: rule.key, audience: rule.audience, choice: choice)
    }

    /// Returns an experiment as people see it, without what only this server knows: derived ids, the state of the
    /// bandit and a ramp that is over.
    private func fileView(of experiment: ExperimentDefinition) -> ExperimentView {
        var view = ExperimentView(experiment)
        let weights = experiment.details.bandit == nil ? experiment.split.weights : nil
        view.variations = experiment.variations.map { variation in
            let isDerived = variation.id.string == DerivedID.of("\(experiment.id)/\(variation.key)")
            return ExperimentView.Variation(
                key: variation.key, id: isDerived ? nil : variation.id,
                weight: weights.map { $0[variation.id] ?? 0 })
        }
        view.traffic = experiment.enrolledTraffic
        view.group = group(of: experiment)?.name
        view.definition.details.ramp = experiment.definedRamp
        view.definition.details.bandit?.predicts = experiment.gate != nil
        return view
    }
}

// MARK: - States

/// The state of an experiment, a flag, a metric or a holdout at some time, in the form of files. Histories show it, and
/// ``DefinitionSetEdit`` restores it.
public struct DefinitionState: Sendable, Equatable {
    /// The element in the form of files.
    public let object: JSONObject
    /// Whether the element comes from an uploaded datafile, so that only another upload can restore it.
    public let isOfDatafile: Bool
}

extension ProjectDefinitions {
    /// Returns the current state of an element, even of one that files leave out; `nil` if there is none.
    func state(of kind: DefinitionSet.Kind, _ key: Identifier) -> DefinitionState? {
        switch kind {
        case .experiments:
            guard let experiment = experiments[key] else { return nil }
            // An experiment that was a rule keeps the form of a rule, so that a history can compare its states.
            let isRule =
                experiment.flagKey != nil || flags(ofExperiment: experiment.id).contains { $0.rules != nil }
            let isOfDatafile = listedObject(of: experiment) == nil && !isRule
            return DefinitionState(object: file(of: experiment, isRule: isRule), isOfDatafile: isOfDatafile)
        case .flags:
            guard let flag = flags[key] else { return nil }
            var isOfDatafile = false
            if case .datafile = flag.content { isOfDatafile = true }
            return DefinitionState(object: file(of: flag), isOfDatafile: isOfDatafile)
        case .metrics: return metrics[key].map { DefinitionState(object: $0.definition, isOfDatafile: false) }
        case .holdouts: return holdouts[key].map { DefinitionState(object: $0.definition, isOfDatafile: false) }
        case .attributes, .segments, .groups, .webhooks: return nil
        }
    }
}

// MARK: - Members that files leave out

extension ExperimentDefinition {
    /// The names of the members that the schedule or the ramp changes. A file leaves them out, so that applying it does
    /// not undo such a change.
    fileprivate var namesThatChange: Set<String> {
        var names: Set<String> = []
        if isDraft, let schedule = details.schedule, schedule.startAt != nil, schedule.startedAt == nil {
            names.insert("status")
        }
        if definedRamp != nil { names.insert("traffic") }
        if details.schedule?.endAt != nil { names.insert("enrollment") }
        return names
    }

    /// The ramp if it goes on or is held; `nil` for one that is over.
    fileprivate var definedRamp: Ramp? { details.ramp.flatMap { $0.isPending || $0.state.status == .held ? $0 : nil } }

    /// Returns the allocation; `nil` if a new experiment with the same members would have the same one, or if a bandit
    /// changes it.
    fileprivate func uncommonAllocation(isGrouped: Bool) -> TrafficAllocation? {
        guard details.bandit == nil else { return nil }
        let weights = split.weights
        // The own allocation of an experiment in a group assigns all bucket values, because the group limits the
        // traffic.
        let shares = TrafficAllocation.weights(
            of: variations.map(\.id), ratio: variations.map { weights[$0.id] ?? 0 },
            traffic: isGrouped ? 100 : enrolledTraffic)
        return TrafficAllocation(weights: shares) == allocation ? nil : allocation
    }
}

extension HoldoutDefinition {
    /// The holdout in the form of files.
    var definition: JSONObject {
        var object = JSONObject()
        object["key"] = JSONValue(key)
        Self.members.writeFile(self, to: &object)
        return object
    }
}

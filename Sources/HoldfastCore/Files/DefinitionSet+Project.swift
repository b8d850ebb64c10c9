import Bucketing
public import Definitions
public import JSON
public import Storage

/// An experiment, a flag, a metric or a holdout as it was, in the form of files.
public struct DefinitionState: Sendable, Equatable {
    public let object: JSONObject
    /// Whether a datafile brought it, so that only another upload can bring it again.
    public let isOfDatafile: Bool
}

extension DefinitionSet {
    /// Describes what the API has defined. What an uploaded datafile brought is left out, if only another upload could
    /// bring it again.
    ///
    /// - Parameters:
    ///   - definitions: `nil` if there is no project yet.
    ///   - webhooks: those of this project and of all projects; `nil` to say nothing of webhooks.
    ///   - edited: the definitions of which these are an edit, with their description, of which everything is taken over that
    ///     the edit did not touch.
    public init(
        _ definitions: ProjectDefinitions?, _ schema: AttributeSchema, webhooks: [Webhook]? = nil,
        since edited: (definitions: ProjectDefinitions, set: DefinitionSet)? = nil
    ) {
        self[.webhooks] = (webhooks ?? []).map {
            var object = JSONObject(.init(key: "key", value: .string($0.key)))
            Webhook.Definition.members.writeFile($0.definition, to: &object)
            return Element(key: Identifier($0.key), object: object)
        }
        saysWebhooks = webhooks?.isEmpty == false
        self[.attributes] = schema.attributes.map { Element(key: $0.name, object: $0.json.object ?? JSONObject()) }
        self[.segments] = schema.segments.values.sorted { $0.name < $1.name }.map {
            Element(key: $0.name, object: $0.json)
        }
        guard let definitions else { return }
        project = definitions.assignmentLifetime.map {
            JSONObject(.init(key: AssignmentLifetime.apiMember, value: .string($0.text)))
        }
        func sorted(_ elements: [Element]) -> [Element] { elements.sorted { $0.key < $1.key } }
        self[.metrics] = sorted(definitions.metrics.map { Element(key: $0.key, object: $0.definition) })
        self[.groups] = sorted(definitions.groups.compactMap { definitions.element(of: $0) })
        let touched = edited.map { definitions.touchedElements(since: $0.definitions) }
        self[.experiments] = sorted(
            Self.elements(
                definitions.experiments, touched?.experiments, edited?.set[.experiments], definitions.definition))
        self[.flags] = sorted(
            Self.elements(definitions.flags, touched?.flags, edited?.set[.flags], definitions.definition))
        // In their order, because of several holdouts the first one counts.
        self[.holdouts] = definitions.holdouts.map { Element(key: $0.key, object: $0.definition) }
    }

    /// - Parameters:
    ///   - touched: the keys of those that may differ from former ones; `nil` for all.
    ///   - former: the elements that were described before.
    private static func elements<Defined>(
        _ list: DefinitionList<Defined>, _ touched: Set<Identifier>?, _ former: [Element]?,
        _ describe: (Defined) -> JSONObject?
    ) -> [Element] {
        guard let touched, let former else {
            return list.compactMap { element in
                describe(element).map { Element(key: element.listKey, object: $0) }
            }
        }
        let described = list.all(naming: [], orKeyed: Array(touched)).compactMap { element in
            describe(element).map { Element(key: element.listKey, object: $0) }
        }
        return former.filter { !touched.contains($0.key) } + described
    }
}

extension ProjectDefinitions {
    /// Returns the keys of the experiments and flags whose form in files may differ from that in former definitions, of which
    /// these are an edit: what was touched, the flags of such experiments, and the experiments of such flags.
    fileprivate func touchedElements(
        since former: ProjectDefinitions
    ) -> (experiments: Set<Identifier>, flags: Set<Identifier>) {
        var (touchedExperiments, touchedFlags) = (experiments.touched, flags.touched)
        for definitions in [former, self] {
            let ids = experiments.touched.compactMap { definitions.experiments[$0]?.id }
            let owners = definitions.flags.all(
                naming: ids + experiments.touched, orKeyed: Array(experiments.touched) + flags.touched)
            for flag in owners {
                touchedFlags.insert(flag.key)
                touchedExperiments.formUnion(definitions.experiments(of: flag).map(\.key))
            }
        }
        return (touchedExperiments, touchedFlags)
    }
}

extension ProjectDefinitions {
    fileprivate func element(of group: ExperimentGroup) -> DefinitionSet.Element? {
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

    /// Returns an experiment in the form of files. Of a flag's rule the flag has the rest.
    ///
    /// - Returns: `nil` if a datafile brought it, or if nothing is to be said of it.
    fileprivate func definition(of experiment: ExperimentDefinition) -> JSONObject? {
        let group = group(of: experiment)
        guard experiments[experiment.key]?.id == experiment.id, group == nil || group?.name != nil else { return nil }
        let owners = flags(ofExperiment: experiment.id)
        guard owners.allSatisfy({ $0.rules != nil }) else { return nil }
        let isRule = !owners.isEmpty
        // Without a flag it is what is left of a rule; with the audiences of a datafile it belongs to that.
        guard isRule || experiment.flagKey == nil && experiment.audience != nil else { return nil }
        let object = file(of: experiment, isRule: isRule)
        return isRule && object.count == 1 ? nil : object
    }

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

    /// Returns a flag in the form of files; `nil` if an experiment or a datafile defines everything of it.
    fileprivate func definition(of flag: FlagDefinition) -> JSONObject? {
        if case .datafile = flag.content { return nil }
        let object = file(of: flag)
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

    /// What a file has of an experiment.
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

extension ProjectDefinitions {
    /// Returns a definition in the form of files, also one that files leave out; `nil` if there is none.
    func state(of kind: DefinitionSet.Kind, _ key: Identifier) -> DefinitionState? {
        switch kind {
        case .experiments:
            guard let experiment = experiments[key] else { return nil }
            // What is left of a rule has the members of a rule, too, so that a history can compare them.
            let isRule =
                experiment.flagKey != nil || flags(ofExperiment: experiment.id).contains { $0.rules != nil }
            let isOfDatafile = definition(of: experiment) == nil && !isRule
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

// MARK: - What a file has of an experiment

extension ExperimentDefinition {
    /// The names of what schedule and ramp set, which a file leaves to them.
    fileprivate var namesThatChange: Set<String> {
        var names: Set<String> = []
        if isDraft, let schedule = details.schedule, schedule.startAt != nil, schedule.startedAt == nil {
            names.insert("status")
        }
        if definedRamp != nil { names.insert("traffic") }
        if details.schedule?.endAt != nil { names.insert("enrollment") }
        return names
    }

    /// A ramp that has ended is history.
    fileprivate var definedRamp: Ramp? { details.ramp.flatMap { $0.isPending || $0.state.status == .held ? $0 : nil } }

    /// Returns the allocation, unless a new experiment with the same members would have the same, or a bandit moves it.
    fileprivate func uncommonAllocation(isGrouped: Bool) -> TrafficAllocation? {
        guard details.bandit == nil else { return nil }
        let weights = split.weights
        let shares = TrafficAllocation.weights(
            of: variations.map(\.id), ratio: variations.map { weights[$0.id] ?? 0 },
            traffic: isGrouped ? 100 : enrolledTraffic)
        return TrafficAllocation(weights: shares) == allocation ? nil : allocation
    }
}

extension HoldoutDefinition {
    fileprivate var definition: JSONObject {
        var object = JSONObject()
        object["key"] = JSONValue(key)
        Self.members.writeFile(self, to: &object)
        return object
    }
}

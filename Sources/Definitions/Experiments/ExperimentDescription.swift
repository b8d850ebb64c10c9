public import Bucketing
public import JSON

extension Experiment {
    /// Each variation's share of the experiment's bucket values, in hundredths of a percent. While enrollment is
    /// closed, the share that applies when it reopens.
    package var shares: [Identifier: Int] { plannedAllocation.shares }

    package var split: VariationSplit {
        VariationSplit(ids: variations.map(\.id), given: variations.compactMap(\.weight), shares: shares)
    }

    /// The percentage of users who are enrolled, 0 to 100. While enrollment is closed, the percentage that applies when
    /// it reopens.
    package var traffic: Double { annotations.traffic ?? plannedGate ?? split.traffic }

    package var enrollment: ExperimentChange.Enrollment { annotations.isClosed ? .closed : .open }

    /// The name of the group of mutually exclusive experiments; for a group of an uploaded datafile, the id.
    var groupName: String? { exclusionGroup.map { $0.name ?? $0.id.string } }

    /// Returns the experiment as people see it.
    func view(in datafile: Datafile, _ definitions: ProjectDefinitions) -> ExperimentView {
        let known = definitions.experiments[key]
        var view = ExperimentView(known ?? ExperimentDefinition(id: id, key: key))
        // While its flag is off, a running experiment is paused.
        view.definition.status = annotations.isDraft ? ExperimentStatus.draft.rawValue : status
        if known == nil { view.definition.enrollment = enrollment }
        // In the datafile the audience of a rule also excludes the audiences of earlier deliveries; the flag has it
        // without.
        let rule = known?.flagKey.flatMap { definitions.flags[$0]?.rule(key) }
        view.definition.audience = rule.map { $0.audience ?? .null } ?? known?.audience ?? datafile.audience(of: self)
        view.traffic = traffic
        view.group = groupName
        let split = split
        let weights = split.weights
        // In a group or a contextual bandit, the shares divide only the users whom that admits.
        let part = (annotations.traffic ?? plannedGate).map { $0 / 100 } ?? 1
        view.variations = variations.map { variation in
            // From hundredths of a percent to a percentage with at most six decimals.
            let share = (Double(split.shares[variation.id] ?? 0) * part * 1e4).rounded() / 1e6
            return ExperimentView.Variation(
                key: variation.key, id: variation.id, weight: weights[variation.id] ?? 0, share: share)
        }
        return view
    }

    /// The response of `GET /v1/experiments/{key}`.
    public func description(in compiled: CompiledDefinitions, sdkKey: String) -> JSONValue {
        let datafile = compiled.datafile
        let definitions = compiled.definitions
        var object = JSONObject()
        object["id"] = JSONValue(id)
        object["key"] = JSONValue(key)
        ExperimentView.members.show(view(in: datafile, definitions), in: &object)
        if let definition = definitions.experiments[key] {
            object["bandit"] = definition.details.bandit?.description(of: definition)
            object["plan"] = definitions.planDescription(of: definition)
            object["conclusion"] = definition.conclusion?.description(of: definition)
        }
        object["audience_conditions"] = audienceConditions
        object["traffic_allocation"] = trafficAllocation.json
        object["sdk_key"] = .string(sdkKey)
        object["revision"] = .string(datafile.revision)
        return .object(object)
    }
}

extension ProjectDefinitions {
    /// Returns the keys of the variations that were removed from an experiment, by id.
    public func retiredVariations(of experiment: Experiment) -> [Identifier: Identifier] {
        let retired = experiments[experiment.key]?.retiredVariations ?? []
        return Dictionary(retired.map { ($0.id, $0.key) }, uniquingKeysWith: { $1 })
    }
}

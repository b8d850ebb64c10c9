import Bucketing
import JSON

extension ExperimentChange {
    /// Creates or updates the experiment of a project. Absent members keep their values, ids never change, and as few
    /// bucket values as possible move to another variation.
    ///
    /// - Returns: whether the experiment is new.
    /// - Throws: 409 if the key belongs to a targeted rollout, a flag or a holdout, or the id to another experiment.
    ///   409 also if an id would change, if a flag defines what would change, or if the experiment is archived and the
    ///   change has no status. 422 if a new experiment has no variations, if two variations have the same id, or if the
    ///   experiments of its group would have more than 100% of the traffic.
    @discardableResult
    public func apply(to definitions: inout ProjectDefinitions) throws(CoreError) -> Bool {
        guard let former = definitions.experiments[Identifier(key)] else {
            // A new experiment is served as a flag of its key, so no other flag may have the key.
            guard definitions.flags[Identifier(key)] == nil else {
                throw CoreError(
                    .conflict,
                    "an experiment must have a key that no flag has; the flag '\(key)' has it: choose another key, or "
                        + "make the experiment a rule of the flag with PUT /v1/flags/\(key)", at: [])
            }
            guard definitions.holdouts[Identifier(key)] == nil else {
                throw CoreError(.conflict, "an experiment must have a key that no holdout has; '\(key)' is a holdout")
            }
            try define(in: &definitions)
            return true
        }
        let flags = definitions.flags(ofExperiment: former.id)
        try checkFlags(flags)
        try define(in: &definitions, rule: flags.first { $0.rules != nil })
        return false
    }

    /// Checks that the change leaves alone what a flag defines.
    ///
    /// - Throws: 409 otherwise.
    private func checkFlags(_ flags: [FlagDefinition]) throws(CoreError) {
        if status != nil, let flag = flags.first(where: { !$0.isEnabled }) {
            throw CoreError(
                .conflict, "`status` must stay while the flag '\(flag.key)' is not enabled", at: ["status"])
        }
        guard let flag = flags.first(where: { $0.rules != nil }), let rules = flag.rules else { return }
        if audience != nil {
            throw CoreError(.conflict, "`audience` must be changed in the flag '\(flag.key)'", at: ["audience"])
        }
        let known = Set(rules.variations.map(\.key))
        for (index, variation) in (variations ?? []).enumerated() where !known.contains(variation.key) {
            throw CoreError(
                .conflict, "a variation must be one of the flag '\(flag.key)'; got '\(variation.key)'",
                at: JSONPointer().appending("variations").appending(index))
        }
    }

    /// Creates or updates the experiment as ``apply(to:)`` does, but may also change what a flag defines. Flags use
    /// this for the experiments of their rules.
    ///
    /// - Parameter flag: the flag whose rule the experiment is; `nil` for none.
    func define(in definitions: inout ProjectDefinitions, rule flag: FlagDefinition? = nil) throws(CoreError) {
        let former = definitions.experiments[Identifier(key)]
        try definitions.expectNoDeliveryRule(Identifier(key))
        try checkExistence(former)
        let id = try experimentID(replacing: former, in: definitions)
        var experiment = former ?? ExperimentDefinition(id: id, key: Identifier(key))
        try changeStatus(of: &experiment, isNew: former == nil)
        try checkMetrics(of: experiment, in: definitions)
        var view = ExperimentView(experiment)
        ExperimentView.members.apply(given, to: &view)
        experiment = view.definition
        if let variations { try apply(variations, to: &experiment) }
        if former?.winner != nil, experiment.isConcluded, experiment.winner == nil {
            throw CoreError(
                .conflict, "the variation that '\(key)' was concluded with must stay, because everybody gets it",
                at: ["variations"])
        }
        let formerGroup = definitions.group(of: former)
        let groupName = try groupName(replacing: formerGroup)
        adjustToTimes(&experiment, former)
        // The gate makes an experiment a contextual bandit. A new gate admits all users.
        if let predicts = details.bandit?.predicts { experiment.gate = predicts ? experiment.gate ?? 100 : nil }
        try experiment.checkBandit(definitions.metrics)
        allocate(&experiment, former, isGrouped: groupName != nil)
        setOwner(of: &experiment, former, flag, in: definitions)
        if formerGroup == nil || formerGroup?.name != nil {
            try definitions.set(experiment, inGroup: groupName)
        } else {
            // A group of an uploaded datafile stays as it is.
            definitions.experiments.set(experiment)
        }
    }

    /// - Throws: 409 if the experiment is archived and the change has no status; 422 if a new experiment has no
    ///   variations.
    private func checkExistence(_ former: ExperimentDefinition?) throws(CoreError) {
        guard former?.isArchived != true || status != nil else {
            throw CoreError(
                .conflict, "the experiment '\(key)' is archived; set `status` to restore it", at: ["status"])
        }
        guard former != nil || variations != nil else {
            throw CoreError(.unprocessable, "a new experiment must have `variations`", at: ["variations"])
        }
    }

    /// - Throws: 422 if a metric is not defined; 409 if the metrics of a concluded experiment would change.
    private func checkMetrics(
        of experiment: ExperimentDefinition, in definitions: ProjectDefinitions
    ) throws(CoreError) {
        guard let metrics = given.value("metrics", \.definition.details.metrics) else { return }
        try metrics.check(definitions.metrics)
        if experiment.conclusion != nil, Set(metrics.all) != Set(experiment.details.metrics.all) {
            throw CoreError(
                .conflict,
                "the metrics of '\(key)' must stay as they are, because its results are kept; reopen it first",
                at: ["metrics"])
        }
    }

    /// Returns the name of the experiment's group after the change; `nil` for no group, or for one of an uploaded
    /// datafile.
    ///
    /// - Throws: 409 if the experiment would leave a group of an uploaded datafile.
    private func groupName(replacing former: ExperimentGroup?) throws(CoreError) -> String? {
        if given.has("group"), let former, former.name == nil {
            throw CoreError(
                .conflict, "`group` must be changed in the datafile, which has '\(key)' in its group '\(former.id)'",
                at: ["group"])
        }
        return given.value("group", \.group) ?? former?.name
    }

    /// Notes which flag has the experiment: the flag whose rule it is, or else the flag of the same key that serves it.
    private func setOwner(
        of experiment: inout ExperimentDefinition, _ former: ExperimentDefinition?, _ flag: FlagDefinition?,
        in definitions: ProjectDefinitions
    ) {
        if let flag {
            experiment.flagKey = flag.key
            experiment.isServed = nil
            return
        }
        let isOfAPI = former == nil || former?.flagKey != nil || experiment.layerID == experiment.id
        // A rule whose flag has been deleted becomes an experiment of its own.
        if isOfAPI, definitions.flags(ofExperiment: experiment.id).isEmpty {
            experiment.flagKey = nil
            experiment.isServed = true
        }
    }

    /// Adjusts the status and the ramp. A new experiment with a start time becomes a draft, because it must not run
    /// before that time. A change of the traffic by hand ends the ramp.
    private func adjustToTimes(_ experiment: inout ExperimentDefinition, _ former: ExperimentDefinition?) {
        if former == nil, status == nil, details.schedule?.startAt != nil {
            experiment.status = ExperimentStatus.draft.rawValue
        }
        let hasRamp = experiment.details.ramp.map { $0.isPending || $0.state.status == .held } ?? false
        if let traffic, let former, traffic != former.enrolledTraffic, hasRamp {
            experiment.details.ramp?.leaveStep(as: .ended, because: "the traffic was changed by hand")
        }
    }

    /// Sets the status, if the body has one.
    ///
    /// - Throws: 409 if the experiment cannot have the status.
    private func changeStatus(of experiment: inout ExperimentDefinition, isNew: Bool) throws(CoreError) {
        guard let status, status.rawValue != experiment.status || isNew else { return }
        let hasRun = !isNew && !experiment.isDraft && experiment.status != ExperimentStatus.notStarted.rawValue
        if status == .draft, hasRun {
            throw CoreError(
                .conflict,
                "an experiment that has started cannot be a draft again; pause it, or copy it with "
                    + "PUT /v1/experiments/KEY?from=\(key)", at: ["status"])
        }
        if status == .concluded, experiment.conclusion == nil {
            throw CoreError(
                .conflict, "an experiment is concluded with POST /v1/experiments/\(key)/conclude", at: ["status"])
        }
        experiment.status = status.rawValue
        // Another status reopens or restores the experiment.
        if status != .concluded, status != .archived { experiment.conclusion = nil }
    }

    /// Returns the id of the experiment: the former one, the given one, or else a random one.
    ///
    /// - Throws: 409 if the id would change, or if another experiment has it.
    private func experimentID(
        replacing former: ExperimentDefinition?, in definitions: ProjectDefinitions
    ) throws(CoreError) -> Identifier {
        let id = try Self.id(former?.id, given: given.value("id", \.id), at: ["id"]) ?? Self.freshID()
        let owner = definitions.experiment(id: id).map(\.key) ?? definitions.deliveryRule("id", id)
        if let owner, owner != Identifier(key) {
            throw CoreError(.conflict, "`id` must be free; the experiment '\(owner)' has '\(id)'", at: ["id"])
        }
        return id
    }

    /// Returns the former id, or else the given one; `nil` if there is neither.
    ///
    /// - Throws: 409 if they differ.
    private static func id(
        _ former: Identifier?, given: Identifier?, at place: JSONPointer
    ) throws(CoreError) -> Identifier? {
        guard let former else { return given }
        if let given, given != former {
            throw CoreError(
                .conflict, "`id` must stay '\(former)', because assignments refer to it; got '\(given)'", at: place)
        }
        return former
    }

    /// Returns a random id of 16 to 18 digits. An id that is derived from the key could be that of a deleted
    /// experiment, whose stored assignments would then apply again.
    private static func freshID() -> Identifier {
        Identifier(String(UInt64.random(in: 1_000_000_000_000_000..<1_000_000_000_000_000_000)))
    }

    /// Replaces the variations of the experiment. A variation keeps its id as long as it keeps its key, even if it was
    /// removed in between.
    ///
    /// - Throws: 409 if an id would change; 422 if two variations have the same id.
    private func apply(_ changes: [ExperimentView.Variation], to experiment: inout ExperimentDefinition)
        throws(CoreError)
    {
        let known = experiment.variations
        let retired = experiment.retiredVariations
        var variations: [ExperimentDefinition.Variation] = []
        var ids: Set<Identifier> = []
        for (index, change) in changes.enumerated() {
            let place = JSONPointer().appending("variations").appending(index).appending("id")
            let former = known.last { $0.key == change.key }
            let formerID = former?.id ?? retired.last { $0.key == change.key }?.id
            // No other variation has this name, because an experiment's id has no slash.
            let id =
                try Self.id(formerID, given: change.id, at: place)
                ?? Identifier(DerivedID.of("\(experiment.id)/\(change.key)"))
            guard ids.insert(id).inserted else {
                throw CoreError(.unprocessable, "the ids of variations must differ; got '\(id)' twice", at: place)
            }
            variations.append(
                ExperimentDefinition.Variation(
                    id: id, key: change.key, weight: change.weight, source: former?.source ?? JSONObject()))
        }
        experiment.variations = variations
        let former = retired + known.map { ExperimentDefinition.RetiredVariation(id: $0.id, key: $0.key) }
        experiment.retiredVariations = former.filter { former in
            !ids.contains(former.id) && !variations.contains { $0.key == former.key }
        }
    }

    /// Divides the experiment's users. A ramp that the body gives sets the traffic to that of its step.
    ///
    /// - Parameter former: `nil` for a new experiment.
    private func allocate(
        _ experiment: inout ExperimentDefinition, _ former: ExperimentDefinition?, isGrouped: Bool
    ) {
        let givenRamp = given.has("ramp") ? experiment.details.ramp : nil
        let rampTraffic = givenRamp.flatMap { $0.isPending ? $0.step.traffic : nil }
        experiment.allocate(
            traffic: traffic ?? rampTraffic ?? former?.enrolledTraffic ?? 100, since: former?.split,
            dividesAnew: variations != nil, isGrouped: isGrouped)
    }
}

import Bucketing
import JSON

extension ExperimentChange {
    /// Creates or updates the experiment of a project. Absent members keep their values, ids never change, and as few
    /// bucket values as possible move to another variation.
    ///
    /// - Returns: whether the experiment is new.
    /// - Throws: 422 if a new experiment has no variations, or two variations have the same id; 409 if the key belongs
    ///   to a targeted rollout or a flag, the id belongs to another experiment, an id would change, the experiment is
    ///   archived and the change has no status, or a flag defines what would change; 422 if the experiments of its
    ///   group would have more than 100% of the traffic.
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

    /// - Throws: 409 if the change is of what a flag defines.
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

    /// Creates or updates the experiment as ``apply(to:)`` does, whatever flag it belongs to.
    ///
    /// - Parameter flag: the one whose rule the experiment is, if it is one.
    func define(in definitions: inout ProjectDefinitions, rule flag: FlagDefinition? = nil) throws(CoreError) {
        let former = definitions.experiments[Identifier(key)]
        try definitions.expectNoDeliveryRule(Identifier(key))
        guard former?.isArchived != true || status != nil else {
            throw CoreError(
                .conflict, "the experiment '\(key)' is archived; set `status` to restore it", at: ["status"])
        }
        guard former != nil || variations != nil else {
            throw CoreError(.unprocessable, "a new experiment must have `variations`", at: ["variations"])
        }
        let id = try Self.id(former?.id, given: given.value("id", \.id), at: ["id"]) ?? Self.freshID()
        let owner = definitions.experiment(id: id).map(\.key) ?? definitions.deliveryRule("id", id)
        if let owner, owner != Identifier(key) {
            throw CoreError(.conflict, "`id` must be free; the experiment '\(owner)' has '\(id)'", at: ["id"])
        }
        var experiment = former ?? ExperimentDefinition(id: id, key: Identifier(key))
        try changeStatus(of: &experiment, isNew: former == nil)
        if let metrics = given.value("metrics", \.definition.details.metrics) {
            try metrics.check(definitions.metrics)
            if experiment.conclusion != nil, Set(metrics.all) != Set(experiment.details.metrics.all) {
                throw CoreError(
                    .conflict,
                    "the metrics of '\(key)' must stay as they are, because its results are kept; reopen it first",
                    at: ["metrics"])
            }
        }
        var view = ExperimentView(experiment)
        ExperimentView.members.apply(given, to: &view)
        experiment = view.definition
        if let variations { try apply(variations, to: &experiment) }
        if former?.winner != nil, experiment.isConcluded, experiment.winner == nil {
            throw CoreError(
                .conflict, "the variation that '\(key)' was concluded with must stay, because everybody gets it",
                at: ["variations"])
        }
        let present = definitions.group(of: former)
        if given.has("group"), let present, present.name == nil {
            throw CoreError(
                .conflict, "`group` must be changed in the datafile, which has '\(key)' in its group '\(present.id)'",
                at: ["group"])
        }
        let name = given.value("group", \.group) ?? present?.name
        setTimes(of: &experiment, former)
        if let predicts = details.bandit?.predicts { experiment.gate = predicts ? experiment.gate ?? 100 : nil }
        try experiment.checkBandit(definitions.metrics)
        allocate(&experiment, former, isGrouped: name != nil)
        if let flag {
            (experiment.flagKey, experiment.isServed) = (flag.key, nil)
        } else if former == nil || former?.flagKey != nil || experiment.layerID == id,
            definitions.flags(ofExperiment: id).isEmpty
        {
            // The flag whose rule it was has been deleted since.
            (experiment.flagKey, experiment.isServed) = (nil, true)
        }
        if present == nil || present?.name != nil {
            try definitions.set(experiment, inGroup: name)
        } else {
            definitions.experiments.set(experiment)
        }
    }

    /// What the schedule starts is a draft. A change of the traffic by hand ends the ramp.
    private func setTimes(of experiment: inout ExperimentDefinition, _ former: ExperimentDefinition?) {
        // What is to start later must not run now.
        if former == nil, status == nil, details.schedule?.startAt != nil {
            experiment.status = ExperimentStatus.draft.rawValue
        }
        if let traffic, let former, traffic != former.enrolledTraffic,
            experiment.details.ramp.map({ $0.isPending || $0.state.status == .held }) ?? false
        {
            experiment.details.ramp?.end(.ended, at: nil, "the traffic was changed by hand", nil)
        }
    }

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
        // Who restores it says what it is now.
        if status != .concluded, status != .archived { experiment.conclusion = nil }
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

    /// Returns a random id. It must not be the id of a deleted experiment, whose stored assignments would apply again.
    private static func freshID() -> Identifier {
        Identifier(String(UInt64.random(in: 1_000_000_000_000_000..<1_000_000_000_000_000_000)))
    }

    private func apply(_ changes: [ExperimentView.Variation], to experiment: inout ExperimentDefinition)
        throws(CoreError)
    {
        let (known, retired) = (experiment.variations, experiment.retiredVariations)
        var variations: [ExperimentDefinition.Variation] = []
        var ids: Set<Identifier> = []
        for (index, change) in changes.enumerated() {
            let place = JSONPointer().appending("variations").appending(index).appending("id")
            let former = known.last { $0.key == change.key }
            let formerID = former?.id ?? retired.last { $0.key == change.key }?.id
            // Unambiguous, because an experiment's id has no slash.
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

public import Bucketing
import JSON

extension FlagChange {
    /// Creates or updates the flag of a project.
    ///
    /// - Returns: whether the flag is new.
    /// - Throws: 409 if a datafile or an experiment defines the flag, and the change has members that must be changed
    ///   there. 409 also if an experiment has the key of a new flag, or if an experiment is archived and the change
    ///   does not restore it. 422 with every wrong member.
    @discardableResult
    public func apply(to definitions: inout ProjectDefinitions) throws(CoreError) -> Bool {
        guard var flag = definitions.flags[Identifier(key)] else {
            try checkNoExperiment(in: definitions)
            guard let type else { throw CoreError(.unprocessable, "a new flag must have a `type`", at: ["type"]) }
            let rules = FlagDefinition.Rules(type: type)
            try define(FlagDefinition(key: Identifier(key), .rules(rules)), rules, &definitions)
            return true
        }
        guard let rules = flag.rules else {
            try annotate(&flag)
            try definitions.set(flag)
            return false
        }
        if let type, type != rules.type {
            throw CoreError(
                .conflict, "`type` must stay \(rules.type.rawValue), because apps rely on it; got \(type.rawValue)",
                at: ["type"])
        }
        try define(flag, rules, &definitions)
        return false
    }

    /// Checks that no experiment has the key of a new flag. Results, exposures and the API name both by their keys, so
    /// one key must not name two things.
    private func checkNoExperiment(in definitions: ProjectDefinitions) throws(CoreError) {
        guard let experiment = definitions.experiments[Identifier(key)] else { return }
        // The experiment was a rule of a flag with this key, which has been deleted and is created again.
        if experiment.flagKey == Identifier(key) { return }
        let place = experiment.flagKey.map { "a rule of the flag '\($0)'" } ?? "an experiment"
        throw CoreError(
            .conflict, "a flag must have a key that no experiment has; \(place) has '\(key)': choose another key",
            at: [])
    }

    /// Changes a flag that comes from a datafile or serves an experiment. The API may change only some of its members.
    ///
    /// - Throws: 409 if the body has others.
    private func annotate(_ flag: inout FlagDefinition) throws(CoreError) {
        var owned = FlagView.members.ownedNames
        let place: String
        if flag.content == .experiment {
            place = "with PUT /v1/experiments/\(key), because the flag serves that experiment"
        } else {
            // The API can turn off a flag of a datafile, too.
            owned.removeAll { $0 == "enabled" }
            place = "with PUT /v1/datafile, because the flag comes from a datafile"
        }
        if let member = owned.first(where: given.has) {
            throw CoreError(
                .conflict, "`\(member)` must be changed \(place); for another flag choose another key", at: [member])
        }
        applyMembers(to: &flag)
    }

    /// Sets the members in the body that are properties of the flag itself, such as the description.
    private func applyMembers(to flag: inout FlagDefinition) {
        var view = FlagView(flag)
        FlagView.members.apply(given, to: &view)
        flag = view.definition
    }

    /// Creates or changes a flag of the API with the experiments of its rules. Archives the experiments whose rules are
    /// gone.
    private func define(
        _ former: FlagDefinition, _ formerRules: FlagDefinition.Rules, _ definitions: inout ProjectDefinitions
    ) throws(CoreError) {
        let merged = try merged(into: formerRules, definitions)
        var flag = former
        applyMembers(to: &flag)
        flag.content = .rules(merged)
        for (index, rule) in (rules ?? []).enumerated() {
            guard case .experiment(let given) = rule.choice else { continue }
            do throws(CoreError) {
                try define(given, key: merged.rules[index].key, of: flag, merged, &definitions)
            } catch {
                var error = error
                let place = JSONPointer().appending("rules").appending(index).appending("experiment")
                error.pointer = place.appending(error.pointer ?? [])
                throw error
            }
        }
        let keys = Set(merged.rules.map(\.key))
        for experiment in definitions.experiments(of: former) where !keys.contains(experiment.key) {
            try definitions.archive(experiment.key)
        }
        try definitions.set(flag)
    }

    /// Creates or changes the experiment of a rule. A new one has all variations of the flag, unless weights are given.
    private func define(
        _ given: Given<ExperimentView>, key: Identifier, of flag: FlagDefinition, _ rules: FlagDefinition.Rules,
        _ definitions: inout ProjectDefinitions
    ) throws(CoreError) {
        var change = ExperimentChange(key: key.string, given)
        if let variations = given.value("weights", \.variations) { change.give(variations) }
        if change.variations == nil, definitions.experiments[key] == nil {
            change.give(rules.variations.map { ExperimentView.Variation(key: $0.key) })
        }
        try change.define(in: &definitions, rule: flag)
    }
}

extension ProjectDefinitions {
    /// Adds or replaces a flag.
    ///
    /// - Throws: 409 if the flag is off and another flag has one of its running experiments.
    fileprivate mutating func set(_ flag: FlagDefinition) throws(CoreError) {
        flags.set(flag)
        guard !flag.isEnabled else { return }
        for experiment in experiments(of: flag) where experiment.status == ExperimentStatus.running.rawValue {
            guard let other = flags(ofExperiment: experiment.id).first(where: { $0.key != flag.key }) else { continue }
            throw CoreError(
                .conflict,
                "the flag cannot be turned off alone: the flag '\(other.key)' has the experiment '\(experiment.key)', too",
                at: ["enabled"])
        }
    }

    /// Removes a flag with its deliveries, and archives its experiments.
    ///
    /// - Throws: 404 if there is no such flag, 409 if it serves an experiment.
    public mutating func removeFlag(_ key: Identifier) throws(CoreError) {
        guard let flag = flags[key] else { throw CoreError(.notFound, "no flag has the key '\(key)'") }
        guard flag.content != .experiment else {
            throw CoreError(
                .conflict, "the flag serves the experiment '\(key)'; archive that with DELETE /v1/experiments/\(key)")
        }
        flags.remove(key)
        // Earlier releases let a flag and an experiment have the same key. Once the flag is gone, apps that ask for the
        // key must not get the variation of that experiment.
        if var experiment = experiments[key], experiment.flagKey == nil {
            experiment.isServed = false
            experiments.set(experiment)
        }
        for experiment in experiments(of: flag) where flags(ofExperiment: experiment.id).isEmpty {
            try archive(experiment.key)
        }
    }
}

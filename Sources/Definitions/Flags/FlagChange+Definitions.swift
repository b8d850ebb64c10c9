public import Bucketing
import JSON

extension FlagChange {
    /// Creates or updates the flag of a project.
    ///
    /// - Returns: whether the flag is new.
    /// - Throws: 409 if the flag comes from a datafile or an experiment and the change has more than it allows, an
    ///   experiment has the key of a new flag, or an experiment is archived and the change does not restore it; 422 with
    ///   every wrong member.
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
            return try definitions.set(flag)
        }
        if let type, type != rules.type {
            throw CoreError(
                .conflict, "`type` must stay \(rules.type.rawValue), because apps rely on it; got \(type.rawValue)",
                at: ["type"])
        }
        try define(flag, rules, &definitions)
        return false
    }

    /// A key has one owner: an experiment of the key would be something else in results, exposures and the API.
    private func checkNoExperiment(in definitions: ProjectDefinitions) throws(CoreError) {
        guard let experiment = definitions.experiments[Identifier(key)] else { return }
        // It was a rule of a flag of this key, which has been deleted since.
        if experiment.flagKey == Identifier(key) { return }
        let place = experiment.flagKey.map { "a rule of the flag '\($0)'" } ?? "an experiment"
        throw CoreError(
            .conflict, "a flag must have a key that no experiment has; \(place) has '\(key)': choose another key",
            at: [])
    }

    /// Changes what the API may change of a flag that comes from a datafile or serves an experiment.
    private func annotate(_ flag: inout FlagDefinition) throws(CoreError) {
        var owned = FlagView.members.ownedNames
        let place: String
        if flag.content == .experiment {
            place = "with PUT /v1/experiments/\(key), because the flag serves that experiment"
        } else {
            // Also a flag of a datafile can be turned off.
            owned.removeAll { $0 == "enabled" }
            place = "with PUT /v1/datafile, because the flag comes from a datafile"
        }
        if let member = owned.first(where: given.has) {
            throw CoreError(
                .conflict, "`\(member)` must be changed \(place); for another flag choose another key", at: [member])
        }
        change(&flag)
    }

    private func change(_ flag: inout FlagDefinition) {
        var view = FlagView(flag)
        FlagView.members.apply(given, to: &view)
        flag = view.definition
    }

    private func define(
        _ former: FlagDefinition, _ formerRules: FlagDefinition.Rules, _ definitions: inout ProjectDefinitions
    ) throws(CoreError) {
        let merged = try merged(into: formerRules, definitions)
        var flag = former
        change(&flag)
        flag.content = .rules(merged)
        for (index, rule) in (rules ?? []).enumerated() {
            guard case .experiment(let given) = rule.choice else { continue }
            var change = ExperimentChange(key: merged.rules[index].key.string, given)
            if let variations = given.value("weights", \.variations) { change.give(variations) }
            // A new experiment has all variations of the flag, unless weights are given.
            if change.variations == nil, definitions.experiments[merged.rules[index].key] == nil {
                change.give(merged.variations.map { ExperimentView.Variation(key: $0.key) })
            }
            do throws(CoreError) {
                try change.define(in: &definitions, rule: flag)
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
}

extension ProjectDefinitions {
    /// Sets a flag, new or known.
    ///
    /// - Returns: false, as the flag is not new.
    /// - Throws: 409 if the flag is off and another flag has one of its running experiments.
    @discardableResult
    fileprivate mutating func set(_ flag: FlagDefinition) throws(CoreError) -> Bool {
        flags.set(flag)
        guard !flag.isEnabled else { return false }
        for experiment in experiments(of: flag) where experiment.status == ExperimentStatus.running.rawValue {
            guard let other = flags(ofExperiment: experiment.id).first(where: { $0.key != flag.key }) else { continue }
            throw CoreError(
                .conflict,
                "the flag cannot be turned off alone: the flag '\(other.key)' has the experiment '\(experiment.key)', too",
                at: ["enabled"])
        }
        return false
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
        // Earlier releases let a flag and an experiment have one key: without the flag, apps that ask for the key must
        // not get the variation of an experiment.
        if var experiment = experiments[key], experiment.flagKey == nil {
            experiment.isServed = false
            experiments.set(experiment)
        }
        for experiment in experiments(of: flag) where flags(ofExperiment: experiment.id).isEmpty {
            try archive(experiment.key)
        }
    }
}

import Bucketing
import Definitions
import JSON
import Storage

/// Experiments, their groups, and what a set lacks.
extension DefinitionSetRun {
    func isRule(_ element: DefinitionSet.Element) -> Bool {
        guard let known = definitions.experiments[element.key] else { return element.object["variations"] == nil }
        return definitions.flags(ofExperiment: known.id).contains { $0.rules != nil }
    }

    mutating func apply(experiment element: DefinitionSet.Element, isRule: Bool) {
        attempt(at: element.place) { run throws(CoreError) in try run.define(experiment: element, isRule: isRule) }
    }

    private mutating func define(experiment element: DefinitionSet.Element, isRule: Bool) throws(CoreError) {
        let key = element.key
        var body = element.object
        // A misspelt member is named before what is missing because of it.
        let others = ["conclusion", DefinitionSet.allocation]
        let known: JSONValue = .object(body.without(others))
        _ = try known.object("an experiment", knowing: ExperimentView.members.givenNames)
        if isRule { try checkRule(body, key) }
        let (given, allocation) = (body["conclusion"], body[DefinitionSet.allocation])
        (body["conclusion"], body[DefinitionSet.allocation]) = (nil, nil)
        if body["status"] == nil, !isRule, let known = definitions.experiments[key] {
            body["status"] = known.restoredStatus
            if known.status == ExperimentStatus.paused.rawValue || known.isConcluded {
                let status = ExperimentStatus.name(of: known.status)
                notRunning.append(
                    JSONFault(
                        pointer: element.place,
                        reason: "the experiment '\(key)' is \(status) and stays so, because no `status` is given"))
            }
        }
        let status = body["status"]?.string.flatMap { ExperimentStatus(name: $0) }
        var ending: ConclusionInput?
        if let given, !given.isNull {
            let wanted = try ConclusionInput(given, at: ["conclusion"])
            // Also of one that has got another key, which is not shown under the new one.
            let known = definitions.experiments[key].flatMap { $0.conclusion?.input(of: $0) }
            ending = wanted == known ? nil : wanted
        }
        if ending != nil {
            guard status == .concluded || status == .archived else {
                throw CoreError(
                    .unprocessable, "`conclusion` must come with the `status` concluded or archived", at: ["conclusion"]
                )
            }
            let now = definitions.experiments[key].flatMap { ExperimentStatus(name: $0.status) }
            body["status"] = nil
            if !isRule, now != .running, now != .paused, now != .concluded { body["status"] = "running" }
        } else if status == .concluded, definitions.experiments[key]?.conclusion == nil {
            throw CoreError(
                .unprocessable,
                "`conclusion` is required of a concluded experiment: {\"winner\":KEY or null,\"reason\":TEXT}",
                at: ["conclusion"])
        }
        try change(Experiment.self, key, changes(body, .experiments, key), at: element.place)
        if let ending {
            try definitions.conclude(key, as: ending, at: conclusion.time, by: conclusion.author.name)
            if status == .archived { try definitions.archive(key) }
        }
        guard project?.definitions.experiments[key] == nil, var experiment = definitions.experiments[key] else {
            return
        }
        if isRule, status == nil, experiment.details.schedule?.startAt != nil {
            experiment.status = ExperimentStatus.draft.rawValue
        }
        if let allocation { experiment.allocation = try Self.allocation(allocation, of: experiment) }
        definitions.experiments.set(experiment)
    }

    /// Gives the experiments whose ids the set has under other keys these keys. Their users stay where they are, because
    /// assignments belong to the id.
    mutating func rename(_ elements: [DefinitionSet.Element]) {
        let named = Set(elements.map(\.key))
        for element in elements where definitions.experiments[element.key] == nil {
            guard let id = element.object.identifier("id"), let known = definitions.experiment(id: id),
                !named.contains(known.key), definitions.group(of: known).map({ $0.name != nil }) ?? true,
                definitions.flags[element.key] == nil, definitions.holdouts[element.key] == nil,
                definitions.flags(ofExperiment: id).allSatisfy({ $0.content == .experiment })
            else { continue }
            definitions.rename(known, to: element.key)
        }
    }

    /// - Throws: 422 if an element has what the flag of its rule defines, or if there is no such rule.
    private func checkRule(_ body: JSONObject, _ key: Identifier) throws(CoreError) {
        guard let experiment = definitions.experiments[key],
            let flag = definitions.flags(ofExperiment: experiment.id).first(where: { $0.rules != nil })
        else {
            throw CoreError(.unprocessable, "a new experiment must have `variations`", at: ["variations"])
        }
        for member in ExperimentView.members.ownedNames where body[member] != nil {
            throw CoreError(
                .unprocessable, "`\(member)` must be given in the flag '\(flag.key)', of which '\(key)' is a rule",
                at: JSONPointer().appending(member))
        }
        if let status = body["status"], status != "concluded", status != "archived" {
            throw CoreError(
                .unprocessable,
                "`status` must be given in the flag '\(flag.key)', of which '\(key)' is a rule, unless it is concluded",
                at: ["status"])
        }
    }

    /// Reads where a new experiment has which bucket values go where, so that it decides as on the server from which it comes.
    private static func allocation(
        _ value: JSONValue, of experiment: ExperimentDefinition
    ) throws(CoreError) -> TrafficAllocation {
        let place = JSONPointer().appending(DefinitionSet.allocation)
        guard let allocation = try? TrafficAllocation(json: value) else {
            throw CoreError(
                .unprocessable,
                "`traffic_allocation` must be an array of {\"entityId\":VARIATION ID,\"endOfRange\":0 to 10000}",
                at: place)
        }
        var (given, expected) = (allocation.shares, experiment.allocation.shares)
        (given[""], expected[""]) = (nil, nil)
        let names = Set(given.keys).union(expected.keys)
        // As much as rounding makes of it.
        guard names.allSatisfy({ abs((given[$0] ?? 0) - (expected[$0] ?? 0)) <= 2 }) else {
            throw CoreError(
                .unprocessable,
                "`traffic_allocation` must agree with the weights and the traffic; leave it out for a new one",
                at: place)
        }
        return allocation
    }

    // MARK: Groups and removals

    /// Divides the groups whose experiments have changed, new ones as they are in the set.
    mutating func divideGroups(_ set: DefinitionSet) {
        let known = Set(project?.definitions.groups.compactMap(\.name) ?? [])
        for element in set[.groups] where !known.contains(element.key.string) {
            attempt(at: element.place) { run throws(CoreError) in try run.define(group: element) }
        }
        let ids = definitions.unallocatedGroups ?? []
        definitions.unallocatedGroups = nil
        for id in ids.sorted() {
            attempt(at: []) { run throws(CoreError) in try run.definitions.allocateGroup(id) }
        }
    }

    private mutating func define(group element: DefinitionSet.Element) throws(CoreError) {
        let member = DefinitionSet.allocation
        var faults = FaultCollector()
        let object = faults.object(.object(element.object), "a group", knowing: ["name", member], at: [])
        var ranges: [TrafficAllocation.Range] = []
        for (value, place) in object.flatMap({ faults.list($0, member, 0...10_000, at: []) }) ?? [] {
            let known = ["experiment", "end_of_range"]
            guard let range = faults.object(value, "a range", knowing: known, at: place) else { continue }
            let key = faults.collect(try range.optionalText("experiment", in: place)).map { Identifier($0) }
            let id = key.flatMap { definitions.experiments[$0]?.id }
            if let key, id == nil {
                let hint = Spelling.hint(for: key, among: definitions.experiments.lazy.map(\.key))
                faults.add("no experiment has the key '\(key)'\(hint)", at: place.appending("experiment"))
            }
            guard let end = range["end_of_range"]?.integer, (0...10_000).contains(end) else {
                faults.add("`end_of_range` must be a whole number from 0 to 10000", at: place.appending("end_of_range"))
                continue
            }
            ranges.append(.init(entityID: id ?? "", end: Int(end)))
        }
        try faults.check()
        guard var group = definitions.groups.last(where: { $0.name == element.key.string }) else { return }
        group.allocation = TrafficAllocation(ranges: ranges)
        definitions.groups.set(group)
    }

    /// Removes what the set lacks.
    ///
    /// - Parameter limit: how many elements at most; `nil` for any number of them, but not for all.
    mutating func removeAll(except set: DefinitionSet, atMost limit: Int?) {
        func lacking(_ kind: DefinitionSet.Kind) -> [Identifier] {
            let kept = Set(set[kind].map(\.key))
            return former[kind].map(\.key).filter { !kept.contains($0) }
        }
        for key in lacking(.holdouts) { remove(Holdout.self, key) }
        for key in lacking(.flags) where definitions.flags[key]?.rules != nil { remove(Flag.self, key) }
        for key in lacking(.experiments) {
            guard let experiment = definitions.experiments[key], !experiment.isArchived, experiment.flagKey == nil
            else {
                continue
            }
            remove(Experiment.self, key)
        }
        for key in lacking(.metrics) where definitions.users(ofMetric: key).isEmpty {
            remove(MetricDefinition.self, key)
        }
        if set.saysWebhooks { removeWebhooks(except: Set(set[.webhooks].map(\.key))) }
        let isEmpty = DefinitionSet.Kind.allCases.allSatisfy { set[$0].isEmpty }
        attempt(at: []) { run throws(CoreError) in
            if isEmpty, limit == nil, run.removals > 0 {
                throw CoreError(
                    .unprocessable,
                    "to remove everything, `max_removals` is required, the greatest number of removals; the set is empty, "
                        + "and would remove \(run.removals)", at: [])
            }
            guard let limit, run.removals > limit else { return }
            throw CoreError(
                .unprocessable,
                "`max_removals` must be at least \(run.removals), because so many would be removed; got \(limit)",
                at: [])
        }
    }

    private mutating func remove<Defined: DefinedElement>(_: Defined.Type, _ key: Identifier) {
        removals += 1
        attempt(at: []) { run throws(CoreError) in try Defined.remove(key, from: &run.definitions) }
    }
}

extension ProjectDefinitions {
    /// Gives an experiment that no rule has another key, and the flag that serves it.
    fileprivate mutating func rename(_ experiment: ExperimentDefinition, to key: Identifier) {
        experiments.remove(experiment.key)
        var other = experiment
        other.key = key
        experiments.append(other)
        guard let flag = flags[experiment.key], flag.content == .experiment else { return }
        var renamed = FlagDefinition(key: key, .experiment)
        (renamed.description, renamed.tags) = (flag.description, flag.tags)
        flags.remove(experiment.key)
        flags.append(renamed)
        for var holdout in holdouts {
            guard let names = holdout.flags, names.contains(experiment.key) else { continue }
            holdout.flags = names.map { $0 == experiment.key ? key : $0 }
            holdouts.set(holdout)
        }
    }
}

extension ExperimentDefinition {
    /// The status that restores an experiment which is archived and named again; `nil` if it is not archived.
    var restoredStatus: JSONValue? {
        guard isArchived else { return nil }
        return .string((conclusion == nil ? ExperimentStatus.running : .concluded).name)
    }
}

extension JSONObject {
    fileprivate func without(_ names: [String]) -> JSONObject {
        var object = self
        for name in names { object[name] = nil }
        return object
    }
}

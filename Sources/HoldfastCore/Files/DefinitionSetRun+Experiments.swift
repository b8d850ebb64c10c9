import Bucketing
import Definitions
import JSON
import Storage

/// Applies the experiments and the groups of a set.
///
/// The experiment of a rule is defined in its flag. An element of the list `experiments` may add members that the flag
/// does not have, such as a name or metrics.
extension DefinitionSetRun {
    /// Whether an element of `experiments` is about the experiment of a flag's rule. A new experiment is of a rule if
    /// its element has no variations, because the flag has them.
    func isRule(_ element: DefinitionSet.Element) -> Bool {
        guard let known = definitions.experiments[element.key] else { return element.object["variations"] == nil }
        return definitions.flags(ofExperiment: known.id).contains { $0.rules != nil }
    }

    /// Creates or changes an experiment.
    ///
    /// - Parameter isRule: see ``isRule(_:)``.
    mutating func apply(experiment element: DefinitionSet.Element, isRule: Bool) {
        attempt(at: element.place) { run throws(CoreError) in try run.define(experiment: element, isRule: isRule) }
    }

    private mutating func define(experiment element: DefinitionSet.Element, isRule: Bool) throws(CoreError) {
        let key = element.key
        var body = element.object
        let conclusion = body["conclusion"]
        let allocation = body[DefinitionSet.allocation]
        body["conclusion"] = nil
        body[DefinitionSet.allocation] = nil
        // Names are checked first, because a misspelt member may be the cause of further errors.
        _ = try JSONValue.object(body).object("an experiment", knowing: ExperimentView.members.givenNames)
        if isRule { try checkRule(element.object, key) }
        if body["status"] == nil, !isRule { keepStatus(of: element, in: &body) }
        let status = body["status"]?.string.flatMap { ExperimentStatus(name: $0) }
        let newConclusion = try newConclusion(conclusion, of: key)
        try checkConclusion(newConclusion, of: key, status)
        if newConclusion != nil {
            // The conclusion sets the status. Only an experiment that runs, is paused or is concluded can be concluded,
            // so any other experiment runs first.
            let currentStatus = definitions.experiments[key].flatMap { ExperimentStatus(name: $0.status) }
            let canBeConcluded =
                currentStatus == .running || currentStatus == .paused || currentStatus == .concluded
            body["status"] = nil
            if !isRule, !canBeConcluded { body["status"] = "running" }
        }
        try change(Experiment.self, key, changes(body, .experiments, key), at: element.place)
        if let newConclusion {
            try definitions.conclude(key, as: newConclusion, at: time, by: author.name)
            if status == .archived { try definitions.archive(key) }
        }
        try completeNew(key, allocation, isDraft: isRule && status == nil)
    }

    /// Checks that the status and the conclusion of an element agree.
    ///
    /// - Throws: 422 if there is a new conclusion without the status concluded or archived, or the status concluded
    ///   without any conclusion.
    private func checkConclusion(
        _ newConclusion: ConclusionInput?, of key: Identifier, _ status: ExperimentStatus?
    ) throws(CoreError) {
        if newConclusion != nil {
            guard status == .concluded || status == .archived else {
                throw CoreError(
                    .unprocessable, "`conclusion` must come with the `status` concluded or archived", at: ["conclusion"]
                )
            }
        } else if status == .concluded, definitions.experiments[key]?.conclusion == nil {
            throw CoreError(
                .unprocessable,
                "`conclusion` is required of a concluded experiment: {\"winner\":KEY or null,\"reason\":TEXT}",
                at: ["conclusion"])
        }
    }

    /// Gives the element of an experiment the status that the set leaves out: an archived experiment is restored, any
    /// other one keeps its status. If the kept status is paused or concluded, ``notRunning`` tells the author that the
    /// experiment does not run.
    private mutating func keepStatus(of element: DefinitionSet.Element, in body: inout JSONObject) {
        guard let known = definitions.experiments[element.key] else { return }
        body["status"] = known.restoredStatus
        guard known.status == ExperimentStatus.paused.rawValue || known.isConcluded else { return }
        let status = ExperimentStatus.name(of: known.status)
        notRunning.append(
            JSONFault(
                pointer: element.place,
                reason: "the experiment '\(element.key)' is \(status) and stays so, because no `status` is given"))
    }

    /// Reads the conclusion of an element.
    ///
    /// - Returns: `nil` if there is none, or if the experiment has the same one.
    private func newConclusion(_ given: JSONValue?, of key: Identifier) throws(CoreError) -> ConclusionInput? {
        guard let given, !given.isNull else { return nil }
        let wanted = try ConclusionInput(given, at: ["conclusion"])
        // Compares with the definitions and not with ``shown``, which has a renamed experiment under its former key.
        let known = definitions.experiments[key].flatMap { $0.conclusion?.input(of: $0) }
        return wanted == known ? nil : wanted
    }

    /// Gives a new experiment the allocation in the set.
    ///
    /// - Parameters:
    ///   - allocation: the `traffic_allocation` in the set; `nil` to keep the allocation that the `PUT` has made.
    ///   - isDraft: whether the experiment becomes a draft if it has a schedule that will start it.
    private mutating func completeNew(
        _ key: Identifier, _ allocation: JSONValue?, isDraft: Bool
    ) throws(CoreError) {
        guard project?.definitions.experiments[key] == nil, var experiment = definitions.experiments[key] else {
            return
        }
        if isDraft, experiment.details.schedule?.startAt != nil {
            experiment.status = ExperimentStatus.draft.rawValue
        }
        if let allocation { experiment.allocation = try Self.allocation(allocation, of: experiment) }
        definitions.experiments.set(experiment)
    }

    /// Renames the experiments whose ids the set has under new keys. Their users keep their variations, because
    /// assignments refer to the id.
    ///
    /// Experiments of flags and of groups of an uploaded datafile are not renamed. Their elements fail later, because
    /// the id is taken.
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

    /// Checks that an element about the experiment of a rule leaves to the flag what the flag defines.
    ///
    /// - Throws: 422 otherwise, and if there is no such rule.
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

    /// Reads the allocation of a new experiment. With the allocation of the server from which the set comes, users get
    /// the same variations.
    ///
    /// - Throws: 422 if the allocation does not agree with the weights and the traffic.
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
        var given = allocation.shares
        var expected = experiment.allocation.shares
        // The empty id has the bucket values without a variation.
        given[""] = nil
        expected[""] = nil
        let ids = Set(given.keys).union(expected.keys)
        // The maximum difference in bucket values, as in ``VariationSplit/weights``: an allocation of raised traffic is
        // rounded in another way than a new one.
        let roundingLimit = 2
        guard ids.allSatisfy({ abs((given[$0] ?? 0) - (expected[$0] ?? 0)) <= roundingLimit }) else {
            throw CoreError(
                .unprocessable,
                "`traffic_allocation` must agree with the weights and the traffic; leave it out for a new one",
                at: place)
        }
        return allocation
    }

    // MARK: Groups

    /// Divides the bucket values of the groups whose experiments have changed. A new group starts with the allocation
    /// in the set.
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

    /// Sets the allocation of a new group, whose experiments the set has created.
    ///
    /// - Throws: 422 with every wrong member.
    private mutating func define(group element: DefinitionSet.Element) throws(CoreError) {
        let member = DefinitionSet.allocation
        var faults = FaultCollector()
        let object = faults.object(.object(element.object), "a group", knowing: ["name", member], at: [])
        var ranges: [TrafficAllocation.Range] = []
        for (value, place) in object.flatMap({ faults.list($0, member, 0...Bucketer.bucketCount, at: []) }) ?? [] {
            if let range = range(value, at: place, &faults) { ranges.append(range) }
        }
        try faults.check()
        guard var group = definitions.groups.last(where: { $0.name == element.key.string }) else { return }
        group.allocation = TrafficAllocation(ranges: ranges)
        definitions.groups.set(group)
    }

    /// Reads a range of a group's allocation: `{"experiment":KEY or null,"end_of_range":0 to 10000}`.
    private func range(
        _ value: JSONValue, at place: JSONPointer, _ faults: inout FaultCollector
    ) -> TrafficAllocation.Range? {
        let members = ["experiment", "end_of_range"]
        guard let object = faults.object(value, "a range", knowing: members, at: place) else { return nil }
        let key = faults.collect(try object.optionalText("experiment", in: place)).map { Identifier($0) }
        let id = key.flatMap { definitions.experiments[$0]?.id }
        if let key, id == nil {
            let hint = Spelling.hint(for: key, among: definitions.experiments.lazy.map(\.key))
            faults.add("no experiment has the key '\(key)'\(hint)", at: place.appending("experiment"))
        }
        guard let end = object["end_of_range"]?.integer, (0...Int64(Bucketer.bucketCount)).contains(end) else {
            faults.add("`end_of_range` must be a whole number from 0 to 10000", at: place.appending("end_of_range"))
            return nil
        }
        return TrafficAllocation.Range(entityID: id ?? "", end: Int(end))
    }
}

extension ProjectDefinitions {
    /// Gives an experiment and the flag that serves it another key. Holdouts that name the flag get the new key, too.
    fileprivate mutating func rename(_ experiment: ExperimentDefinition, to key: Identifier) {
        experiments.remove(experiment.key)
        var other = experiment
        other.key = key
        experiments.append(other)
        guard let flag = flags[experiment.key], flag.content == .experiment else { return }
        var renamed = FlagDefinition(key: key, .experiment)
        renamed.description = flag.description
        renamed.tags = flag.tags
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
    /// The status that restores an archived experiment; `nil` if it is not archived.
    var restoredStatus: JSONValue? {
        guard isArchived else { return nil }
        return .string((conclusion == nil ? ExperimentStatus.running : .concluded).name)
    }
}

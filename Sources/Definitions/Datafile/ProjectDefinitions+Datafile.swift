public import Bucketing
package import JSON

extension ProjectDefinitions {
    /// Identifies a datafile that was generated. The definitions that generated it keep it, and pass it on to their
    /// copies. So definitions with the same generation differ only by what was ``DefinitionList/touched``.
    final class Generation: Sendable, Equatable {
        static func == (left: Generation, right: Generation) -> Bool { left === right }
    }

    /// Generates the datafile. Writes the elements that have changed and those that depend on them, and leaves all
    /// others as they are. A flag that has changed, or whose experiments have, gets the revision as its version.
    ///
    /// - Parameter former: the definitions before the change; `nil` to write all elements. If these definitions are an
    ///   edited copy of the former ones, only the touched elements are compared.
    /// - Returns: the difference between the former and the generated datafile; `nil` if it is large or not known.
    @discardableResult
    public mutating func generate(since former: ProjectDefinitions?) -> DatafileEdit? {
        let isEdit = isEdit(of: former)
        let keepsOrder = sortExperiments(since: isEdit ? former : nil)
        fixPlans(since: former)
        noteRuns(since: former)
        let changed = editedExperiments(since: former).filter { experiments.differs($0.key, from: former?.experiments) }
        var affected = affectedElements(by: changed, since: former)
        affected.experimentIDs.formUnion(updateSharedVariations(since: former))
        writeFlags(affected.flags, affected: affected.experimentIDs, replacing: former)
        writeExperiments(affected.experimentIDs)
        removeDeliveries(of: former)
        writeHoldouts(since: former)
        let edit = writeLists(since: isEdit && keepsOrder ? former : nil)
        // The experiments are looked up again, because writing has changed them.
        let written = experiments.all(naming: changed.map(\.id))
        root[Annotations.member] = rootAnnotations(changed: written, isEdit: isEdit, keepsOrder: keepsOrder)
        // A datafile lists the holdouts for all flags first, and is read in this order.
        holdouts.sort { $0.list == HoldoutDefinition.lists.first ? 0 : 1 }
        generation = Generation()
        experiments.forgetChanges()
        flags.forgetChanges()
        groups.forgetChanges()
        metrics.forgetChanges()
        return edit
    }

    /// The elements that must be written after a change.
    private struct AffectedElements {
        var experimentIDs: Set<Identifier>
        var flags: [FlagDefinition] = []
    }

    /// Returns the elements that must be written because experiments and flags have changed.
    ///
    /// - Parameters:
    ///   - changed: the changed experiments.
    ///   - former: the definitions before the change.
    private func affectedElements(
        by changed: [ExperimentDefinition], since former: ProjectDefinitions?
    ) -> AffectedElements {
        let changedIDs = Set(changed.map(\.id))
        // A winner is a delivery of its flag. The audiences of the flag's later experiments exclude its users, so these
        // experiments are affected, too.
        let withOtherWinner = Set(changed.filter { former?.experiments[$0.key]?.winner != $0.winner }.map(\.id))
        let keys = changed.map(\.key)
        let candidates =
            isEdit(of: former)
            ? flags.all(naming: Array(changedIDs) + keys, orKeyed: keys + flags.touched) : Array(flags)
        var affected = AffectedElements(experimentIDs: changedIDs)
        for flag in candidates {
            let ids = experiments(of: flag).map(\.id)
            let isChanged =
                flags.differs(flag.key, from: former?.flags) || ids.contains(where: withOtherWinner.contains)
            if isChanged { affected.experimentIDs.formUnion(ids) }
            let hasChangedExperiment = ids.contains(where: changedIDs.contains)
            if flag.isAnnotated, isChanged || hasChangedExperiment { affected.flags.append(flag) }
        }
        return affected
    }

    // MARK: Lists

    /// Puts the written elements into the lists of the datafile.
    ///
    /// - Parameter former: the definitions before an edit that keeps the order of the experiments; `nil` for any other
    ///   change. After such an edit only the touched elements are replaced, if none was added, removed or moved.
    /// - Returns: the indices of the replaced elements; `nil` if whole lists were written.
    private mutating func writeLists(since former: ProjectDefinitions?) -> DatafileEdit? {
        let changedExperiments = former.flatMap { experiments.changedElements(since: $0.experiments) }
        let areOutside = changedExperiments?.allSatisfy { $0.element.groupID == nil } ?? false
        let changedFlags = former.flatMap { flags.changedElements(since: $0.flags) }
        if let changedExperiments, areOutside {
            replace("experiments", changedExperiments.map { ($0.index, $0.element.source) })
        } else {
            let (outside, grouped) = experimentsByGroup { JSONValue.object($0.source) }
            root["experiments"] = .array(outside)
            root["groups"] = .array(groups.map { $0.json(grouped[$0.id] ?? []) })
        }
        if let changedFlags {
            replace("featureFlags", changedFlags.map { ($0.index, $0.element.source) })
        } else if root["featureFlags"] != nil || !flags.isEmpty {
            root["featureFlags"] = .array(flags.map { .object($0.source) })
        }
        for (name, list) in [("rollouts", rollouts), ("typedAudiences", audiences)]
        where root[name] != nil || !list.isEmpty {
            root[name] = .array(list)
        }
        guard let changedExperiments, areOutside, let changedFlags else { return nil }
        return DatafileEdit(experiments: changedExperiments.map(\.index), flags: changedFlags.map(\.index))
    }

    /// Replaces elements of a list of the datafile.
    private mutating func replace(_ name: String, _ changes: [(index: Int, object: JSONObject)]) {
        guard !changes.isEmpty, var list = root[name]?.array else { return }
        for (index, object) in changes where list.indices.contains(index) { list[index] = .object(object) }
        root[name] = .array(list)
    }

    // MARK: Comparison

    /// Whether anything differs from former definitions. If these are an edited copy of the former ones, only the
    /// touched elements are compared.
    func hasChanges(since former: ProjectDefinitions) -> Bool {
        guard isEdit(of: former) else { return self != former }
        return experiments.hasChanges(since: former.experiments) || flags.hasChanges(since: former.flags)
            || groups.hasChanges(since: former.groups) || metrics.hasChanges(since: former.metrics)
            || holdouts != former.holdouts || rollouts != former.rollouts || audiences != former.audiences
            || assignmentLifetime != former.assignmentLifetime || sdkKey != former.sdkKey || root != former.root
    }

    /// Whether these definitions are an edited copy of former ones, so that the touched elements are known.
    func isEdit(of former: ProjectDefinitions?) -> Bool { generation != nil && generation === former?.generation }

    // MARK: Order and state of experiments

    /// Sorts the experiments as the datafile lists them: those outside of groups first, then group by group. The order
    /// counts if variations share an id, because then SDKs use the last one.
    ///
    /// - Parameter former: the definitions before an edit; `nil` for any other change.
    /// - Returns: whether the order is known to be as before.
    private mutating func sortExperiments(since former: ProjectDefinitions?) -> Bool {
        if let former, groups.touched.isEmpty {
            let keepsOrder = experiments.touched.allSatisfy { key in
                former.experiments.contains(key) && former.experiments[key]?.groupID == experiments[key]?.groupID
            }
            if keepsOrder { return true }
        }
        let ranks = Dictionary(groups.enumerated().map { ($1.id, $0) }, uniquingKeysWith: { $1 })
        experiments.sort { $0.groupID.flatMap { ranks[$0] } ?? -1 }
        return false
    }

    /// Returns the experiments that may differ from former definitions.
    func editedExperiments(since former: ProjectDefinitions?) -> [ExperimentDefinition] {
        isEdit(of: former) ? experiments.touchedElements : Array(experiments)
    }

    /// Sets ``ExperimentDefinition/hasNeverRun`` of each experiment that has not run before. The value is true while
    /// such an experiment is paused, or one of its flags is off.
    private mutating func noteRuns(since former: ProjectDefinitions?) {
        let running = ExperimentStatus.running.rawValue
        let keys = flags.touched.compactMap { flags[$0] }.flatMap { experiments(of: $0) }.map(\.key)
        let candidates =
            isEdit(of: former)
            ? experiments.all(naming: [], orKeyed: keys + experiments.touched) : Array(experiments)
        for var experiment in candidates
        where former?.experiments[experiment.key].map({ $0.isDraft || $0.hasNeverRun }) ?? true {
            var neverRan = experiment.status == ExperimentStatus.paused.rawValue
            if experiment.status == running { neverRan = flags(ofExperiment: experiment.id).contains { !$0.isEnabled } }
            guard neverRan != experiment.hasNeverRun else { continue }
            experiment.hasNeverRun = neverRan
            experiments.set(experiment)
        }
    }

    // MARK: Annotations of the root

    /// The details of experiments in the datafile, by the ids of the experiments. SDKs do not get them.
    var writtenDetails: JSONObject? { root[Annotations.member]?.object?["experiments"]?.object }

    /// Returns the annotations of the datafile's root: the details of experiments, the metrics, and the assignment
    /// lifetime; `nil` if there are none.
    ///
    /// - Parameters:
    ///   - changed: the experiments whose details are written. Those of the others stay as they are.
    ///   - isEdit: whether metrics that were not touched stay as they are, too.
    private func rootAnnotations(
        changed: [ExperimentDefinition], isEdit: Bool, keepsOrder: Bool
    ) -> JSONValue? {
        let former = root[Annotations.member]?.object
        var members = JSONObject()
        let details = details(
            of: changed, replacingIn: former?["experiments"]?.object ?? JSONObject(), keepsOrder: keepsOrder)
        if !details.isEmpty { members["experiments"] = .object(details) }
        if isEdit, self.metrics.touched.isEmpty {
            members["metrics"] = former?["metrics"]
        } else {
            let metrics = self.metrics.map { JSONObject.Member(key: $0.key.string, value: .object($0.json)) }
            if !metrics.isEmpty { members["metrics"] = .object(JSONObject(metrics)) }
        }
        members[AssignmentLifetime.member] = assignmentLifetime.map { .string($0.text) }
        return members.isEmpty ? nil : .object(members)
    }

    /// Returns the details of all experiments, by id.
    ///
    /// - Parameters:
    ///   - changed: the experiments whose details are written.
    ///   - former: the details in the datafile so far.
    ///   - keepsOrder: whether the experiments have the same order as before.
    private func details(
        of changed: [ExperimentDefinition], replacingIn former: JSONObject, keepsOrder: Bool
    ) -> JSONObject {
        var details: [Identifier: JSONObject] = [:]
        for experiment in changed {
            var object = experiment.details.stored
            object["conclusion"] = experiment.conclusion?.details
            details[experiment.id] = object
        }
        let areSameMembers = details.allSatisfy { id, object in (former[id.string] == nil) == object.isEmpty }
        if keepsOrder, areSameMembers {
            var all = former
            for (id, object) in details where !object.isEmpty { all[id.string] = .object(object) }
            return all
        }
        // The members are in the order of the experiments.
        return JSONObject(
            experiments.map(\.id).compactMap { id in
                guard let object = details[id] else {
                    return former[id.string].map { JSONObject.Member(key: id.string, value: $0) }
                }
                return object.isEmpty ? nil : JSONObject.Member(key: id.string, value: .object(object))
            })
    }
}

// MARK: - Holdouts of the datafile

extension ProjectDefinitions {
    /// All holdouts in the datafile. ``holdouts`` has only the holdouts of the API, and not those of an upload.
    package var holdoutObjects: [JSONObject] { HoldoutDefinition.lists.flatMap { root.objects($0) } }

    /// The lists of holdouts in the datafile, in the order of ``HoldoutDefinition/lists``; `nil` for an absent one.
    package var holdoutLists: [JSONValue?] { HoldoutDefinition.lists.map { root[$0] } }

    /// Whether a holdout in the datafile has a key.
    package func hasHoldout(_ key: Identifier) -> Bool { holdoutObjects.contains { $0.identifier("key") == key } }
}

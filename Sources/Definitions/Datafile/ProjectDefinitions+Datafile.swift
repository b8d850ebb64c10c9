public import Bucketing
import JSON

extension ProjectDefinitions {
    /// A datafile that was generated. Only copies of the definitions that it was generated from have it.
    final class Generation: Sendable, Equatable {
        static func == (left: Generation, right: Generation) -> Bool { left === right }
    }

    /// Generates the datafile: writes what has changed and what depends on it, and leaves everything else as it is. Each
    /// flag that has changed, or whose experiments have, gets the revision as its version.
    ///
    /// - Parameter former: the definitions before the change. If these are a copy of them that was changed since, only what
    ///   was touched is compared.
    /// - Returns: what differs between the former and the generated datafile, if that is little and known.
    @discardableResult
    public mutating func generate(since former: ProjectDefinitions?) -> DatafileEdit? {
        let isEdit = isEdit(of: former)
        let keepsOrder = sortExperiments(since: isEdit ? former : nil)
        fixPlans(since: former)
        noteRuns(since: former)
        let changed = editedExperiments(since: former).filter { experiments.differs($0.key, from: former?.experiments) }
        let changedIDs = Set(changed.map(\.id))
        // Flags deliver what was concluded, and other experiments of theirs come after it.
        let concluded = Set(changed.filter { former?.experiments[$0.key]?.winner != $0.winner }.map(\.id))
        var affected = changedIDs
        var affectedFlags: [FlagDefinition] = []
        let keys = changed.map(\.key)
        for flag in isEdit ? flags.all(naming: Array(changedIDs) + keys, orKeyed: keys + flags.touched) : Array(flags) {
            let ids = experiments(of: flag).map(\.id)
            let isChanged = flags.differs(flag.key, from: former?.flags) || ids.contains(where: concluded.contains)
            if isChanged { affected.formUnion(ids) }
            if flag.isAnnotated, isChanged || ids.contains(where: changedIDs.contains) { affectedFlags.append(flag) }
        }
        if isEdit {
            for key in experiments.touched { variationIDs.replace(former?.experiments[key], with: experiments[key]) }
        } else {
            variationIDs = VariationIDs(experiments)
        }
        let shared = variationIDs.hasShared ? sharedVariations(flagsByExperiment) : [:]
        if shared != sharedVariations {
            let ids = Set(shared.keys).union(sharedVariations.keys)
            for experiment in experiments where experiment.variations.contains(where: { ids.contains($0.id) }) {
                affected.insert(experiment.id)
            }
            sharedVariations = shared
        }
        write(affectedFlags, of: affected, replacing: former)
        write(affected)
        removeDeliveries(of: former)
        writeHoldouts(since: former)
        let edit = writeLists(since: isEdit && keepsOrder ? former : nil)
        root[Annotations.member] = ownMembers(
            experiments.all(naming: Array(changedIDs)), isEdit: isEdit, keepsOrder: keepsOrder)
        // As they are read.
        holdouts.sort { $0.list == HoldoutDefinition.lists.first ? 0 : 1 }
        generation = Generation()
        experiments.forgetChanges()
        flags.forgetChanges()
        groups.forgetChanges()
        metrics.forgetChanges()
        return edit
    }

    /// Puts the written elements into the datafile.
    ///
    /// - Parameter former: the definitions before an edit that keeps the order of the experiments; then what was touched is
    ///   replaced in its place if all others have theirs.
    /// - Returns: the places of what was replaced; `nil` if whole lists were written.
    private mutating func writeLists(since former: ProjectDefinitions?) -> DatafileEdit? {
        let changedExperiments = former.flatMap { experiments.changedPlaces(since: $0.experiments) }
        let areOutside = changedExperiments?.allSatisfy { $0.element.groupID == nil } ?? false
        let changedFlags = former.flatMap { flags.changedPlaces(since: $0.flags) }
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
        let changed = changedExperiments.map(\.element)
        let keys = changed.map(\.key)
        return DatafileEdit(
            experiments: changedExperiments.map(\.index), flags: changedFlags.map(\.index),
            dependentFlags: flags.places(naming: changed.map(\.id) + keys, orKeyed: keys))
    }

    private mutating func replace(_ name: String, _ changes: [(index: Int, object: JSONObject)]) {
        guard !changes.isEmpty, var list = root[name]?.array else { return }
        for (index, object) in changes where list.indices.contains(index) { list[index] = .object(object) }
        root[name] = .array(list)
    }

    /// Whether anything differs from former definitions, of which these are probably an edit: then only what was touched is
    /// compared.
    func hasChanges(since former: ProjectDefinitions) -> Bool {
        guard isEdit(of: former) else { return self != former }
        return experiments.hasChanges(since: former.experiments) || flags.hasChanges(since: former.flags)
            || groups.hasChanges(since: former.groups) || metrics.hasChanges(since: former.metrics)
            || holdouts != former.holdouts || rollouts != former.rollouts || audiences != former.audiences
            || assignmentLifetime != former.assignmentLifetime || sdkKey != former.sdkKey || root != former.root
    }

    /// Whether these definitions are a copy of former ones that was changed, so that what was touched is known.
    func isEdit(of former: ProjectDefinitions?) -> Bool { generation != nil && generation === former?.generation }

    /// Puts the experiments in the order that SDKs read: where it counts, as for variations that share an id, it must be that.
    ///
    /// - Parameter former: the definitions before an edit; `nil` if the order is not known.
    /// - Returns: whether all have the place that they had.
    private mutating func sortExperiments(since former: ProjectDefinitions?) -> Bool {
        if let former, groups.touched.isEmpty {
            let isKept = experiments.touched.allSatisfy {
                former.experiments.contains($0) && former.experiments[$0]?.groupID == experiments[$0]?.groupID
            }
            if isKept { return true }
        }
        let ranks = Dictionary(groups.enumerated().map { ($1.id, $0) }, uniquingKeysWith: { $1 })
        experiments.sort { $0.groupID.flatMap { ranks[$0] } ?? -1 }
        return false
    }

    /// Returns the experiments that may differ from former definitions.
    func editedExperiments(since former: ProjectDefinitions?) -> [ExperimentDefinition] {
        isEdit(of: former) ? experiments.touchedElements : Array(experiments)
    }

    /// Notes which experiments are paused, or have a flag that is off, before they have ever run.
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

    /// What people say about experiments, by their ids, and the metrics, which SDKs do not get, and how long assignments
    /// last; `nil` if there is nothing.
    ///
    /// - Parameter changed: the experiments of which it is written. That of the others is as it was.
    private func ownMembers(_ changed: [ExperimentDefinition], isEdit: Bool, keepsOrder: Bool) -> JSONValue? {
        let written = root[Annotations.member]?.object
        var members = JSONObject()
        let details = details(changed, in: written?["experiments"]?.object ?? JSONObject(), keepsOrder: keepsOrder)
        if !details.isEmpty { members["experiments"] = .object(details) }
        if isEdit, self.metrics.touched.isEmpty {
            members["metrics"] = written?["metrics"]
        } else {
            let metrics = self.metrics.map { JSONObject.Member(key: $0.key.string, value: .object($0.json)) }
            if !metrics.isEmpty { members["metrics"] = .object(JSONObject(metrics)) }
        }
        members[AssignmentLifetime.member] = assignmentLifetime.map { .string($0.text) }
        return members.isEmpty ? nil : .object(members)
    }

    /// - Parameter written: what is written of all experiments.
    private func details(_ changed: [ExperimentDefinition], in written: JSONObject, keepsOrder: Bool) -> JSONObject {
        var details: [Identifier: JSONObject] = [:]
        for experiment in changed {
            var object = experiment.details.stored
            object["conclusion"] = experiment.conclusion?.details
            details[experiment.id] = object
        }
        if keepsOrder, details.allSatisfy({ (written[$0.key.string] == nil) == $0.value.isEmpty }) {
            var all = written
            for (id, object) in details where !object.isEmpty { all[id.string] = .object(object) }
            return all
        }
        // In the order of the experiments.
        return JSONObject(
            experiments.map(\.id).compactMap { id in
                guard let object = details[id] else {
                    return written[id.string].map { JSONObject.Member(key: id.string, value: $0) }
                }
                return object.isEmpty ? nil : JSONObject.Member(key: id.string, value: .object(object))
            })
    }
}

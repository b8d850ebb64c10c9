package import Bucketing
package import Chronology
public import JSON

// The only reader of what datafiles say of definitions. The elements read their own members.

extension ProjectDefinitions {
    /// Reads what a datafile defines.
    package init(_ datafile: Datafile) { self.init(datafile.source) }

    /// Reads what a datafile defines, which must be one that compiles.
    public init(_ datafile: JSONValue) {
        root = datafile.object ?? JSONObject()
        sdkKey = root["sdkKey"]?.string ?? ""
        let own = root[Annotations.member]?.object
        assignmentLifetime = AssignmentLifetime(own)
        rollouts = root["rollouts"]?.array ?? []
        audiences = root["typedAudiences"]?.array ?? []
        let conditions = Dictionary(
            audiences.map { ($0.object?.identifier("id") ?? "", $0.object?["conditions"] ?? .null) },
            uniquingKeysWith: { $1 })
        for object in holdoutObjects {
            HoldoutDefinition(object, audiences: conditions).map { holdouts.append($0) }
        }
        for flag in root.objects("featureFlags") { flags.append(FlagDefinition(flag)) }
        let waiting = Set(flags.lazy.filter { !$0.isEnabled }.flatMap(\.waitingExperiments))
        for member in own?["metrics"]?.object ?? JSONObject() {
            let metric = member.value.object.flatMap { MetricDefinition(stored: $0, key: Identifier(member.key)) }
            if let metric { metrics.append(metric) }
        }
        let details = writtenDetails
        func read(_ owner: JSONObject, groupID: Identifier?) {
            for object in owner.objects("experiments") {
                var experiment = ExperimentDefinition(
                    object, groupID: groupID, audiences: conditions,
                    details: object["id"]?.string.flatMap { details?[$0]?.object })
                if waiting.contains(experiment.id), experiment.status == ExperimentStatus.paused.rawValue {
                    experiment.status = ExperimentStatus.running.rawValue
                }
                experiments.append(experiment)
            }
        }
        read(root, groupID: nil)
        for object in root.objects("groups") {
            let group = ExperimentGroup(object)
            groups.append(group)
            read(object, groupID: group.id)
        }
    }

    /// Reads what a datafile defines in which another process has edited a few elements of this one. Only these are read.
    ///
    /// - Parameter edit: what differs between the two datafiles.
    /// - Returns: `nil` if what the edited elements define depends on others. Then the whole is to be read.
    func reading(_ datafile: JSONValue, _ edit: DatafileEdit) -> ProjectDefinitions? {
        guard let next = datafile.object else { return nil }
        let (own, formerOwn) = (next[Annotations.member]?.object, root[Annotations.member]?.object)
        guard own?["metrics"] == formerOwn?["metrics"],
            Self.areSame("id", at: edit.experiments, of: "experiments", root, next),
            Self.areSame("key", at: edit.flags, of: "featureFlags", root, next)
        else { return nil }
        var read = self
        (read.root, read.generation, read.sharedVariations) = (next, nil, [:])
        read.assignmentLifetime = AssignmentLifetime(own)
        for object in edit.flags.compactMap({ next["featureFlags"]?.array?[$0].object }) {
            let flag = FlagDefinition(object)
            // What a flag keeps from running depends on it.
            guard flag.isEnabled, flags[flag.key]?.isEnabled == true else { return nil }
            read.flags.set(flag)
        }
        let (details, formerDetails) = (own?["experiments"]?.object, formerOwn?["experiments"]?.object)
        var sources: [Identifier: JSONObject] = [:]
        for id in Self.changes(from: formerDetails ?? JSONObject(), to: details ?? JSONObject()) {
            sources[id] = experiments.last(naming: id)?.source
        }
        for object in edit.experiments.compactMap({ next["experiments"]?.array?[$0].object }) {
            sources[object.identifier("id") ?? ""] = object
        }
        for (id, object) in sources {
            let keys = experiments.keys(naming: id)
            guard keys.count == 1, let known = experiments.last(naming: id) else { return nil }
            let audienceID = Identifier(known.audienceID)
            let audience = audiences.last { $0.object?.identifier("id") == audienceID }?.object
            var experiment = ExperimentDefinition(
                object, groupID: known.groupID,
                audiences: audience.map { [audienceID: $0["conditions"] ?? .null] } ?? [:],
                details: details?[id.string]?.object)
            let isWaiting = owners(of: id).contains { !$0.isEnabled && $0.waitingExperiments.contains(id) }
            if isWaiting, experiment.status == ExperimentStatus.paused.rawValue {
                experiment.status = ExperimentStatus.running.rawValue
            }
            guard experiment.key == known.key else { return nil }
            read.experiments.set(experiment)
        }
        read.experiments.forgetChanges()
        read.flags.forgetChanges()
        return read
    }

    /// Whether elements of a list have the same value of a member in two datafiles.
    private static func areSame(
        _ member: String, at indices: [Int], of list: String, _ former: JSONObject, _ edited: JSONObject
    ) -> Bool {
        let (former, edited) = (former[list]?.array ?? [], edited[list]?.array ?? [])
        return indices.allSatisfy { former[$0].object?[member] == edited[$0].object?[member] }
    }

    /// Returns the keys of the members that differ.
    private static func changes(from former: JSONObject, to edited: JSONObject) -> [Identifier] {
        let new = edited.filter { former[$0.key] != $0.value } + former.filter { edited[$0.key] == nil }
        return new.map { Identifier($0.key) }
    }

    /// Reads how long assignments last of a stored datafile.
    package static func assignmentLifetime(in content: [UInt8]) -> AssignmentLifetime? {
        AssignmentLifetime((try? JSONParser().parse(content))?.object?[Annotations.member]?.object)
    }

    /// What the datafile has of experiments that SDKs do not get, by their ids.
    var writtenDetails: JSONObject? { root[Annotations.member]?.object?["experiments"]?.object }

    /// The holdouts as the datafile has them, also those that it brought.
    package var holdoutObjects: [JSONObject] { HoldoutDefinition.lists.flatMap { root.objects($0) } }

    /// The lists of holdouts as the datafile has them.
    package var holdoutLists: [JSONValue?] { HoldoutDefinition.lists.map { root[$0] } }

    /// Whether a holdout has a key, also one that a datafile brought.
    package func hasHoldout(_ key: Identifier) -> Bool { holdoutObjects.contains { $0.identifier("key") == key } }

    /// What the datafile has besides experiments, flags, metrics and the holdouts of the API.
    ///
    /// - Parameter rolloutIDs: those of the deliveries that are left out.
    package func others(without rolloutIDs: Set<Identifier>) -> [JSONValue] {
        var root = root
        for name in ["experiments", "groups", "featureFlags", "rollouts", "revision", Annotations.member] {
            root[name] = nil
        }
        for name in HoldoutDefinition.lists {
            root[name] = .array((root[name]?.array ?? []).filter { !HoldoutDefinition.isOwn($0) })
        }
        var all: [JSONValue] = [.object(root)]
        all += rollouts.filter { !rolloutIDs.contains($0.object?.identifier("id") ?? "") }
        all += groups.map { $0.json([]) }
        for holdout in holdouts { all.append(.object(holdout.json(rules: []))) }
        return all
    }
}

// MARK: - Uploads

extension ProjectDefinitions {
    /// Returns the definitions of a datafile that also says how long assignments last. Everything else of it stays as it is.
    package func lasting(_ lifetime: AssignmentLifetime) -> ProjectDefinitions {
        var completed = self
        completed.assignmentLifetime = lifetime
        var own = root[Annotations.member]?.object ?? JSONObject()
        own[AssignmentLifetime.member] = .string(lifetime.text)
        completed.root[Annotations.member] = .object(own)
        return completed
    }

    /// Returns the definitions of a datafile whose conclusions have the times of their results.
    ///
    /// - Parameter times: by the ids of the experiments.
    package func keepingResults(at times: [Identifier: Instant]) -> ProjectDefinitions {
        func completed(_ owner: JSONObject) -> JSONObject {
            guard let experiments = owner["experiments"]?.array else { return owner }
            var owner = owner
            owner["experiments"] = .array(
                experiments.map { element in
                    guard var experiment = element.object, let id = experiment.identifier("id"), let time = times[id],
                        var members = experiment[Annotations.member]?.object,
                        var conclusion = members["conclusion"]?.object
                    else { return element }
                    conclusion["frozenAt"] = .instant(time)
                    members["conclusion"] = .object(conclusion)
                    experiment[Annotations.member] = .object(members)
                    return .object(experiment)
                })
            return owner
        }
        var root = completed(root)
        if let groups = root["groups"]?.array {
            root["groups"] = .array(groups.map { group in group.object.map { .object(completed($0)) } ?? group })
        }
        return ProjectDefinitions(.object(root))
    }
}

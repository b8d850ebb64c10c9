package import Bucketing
package import Chronology
public import JSON

// How definitions are read from a datafile. ``ProjectDefinitions/init(_:)`` reads a whole datafile;
// ``ProjectDefinitions/reading(_:_:)`` reads only the elements that an edit of another process has changed. The
// elements read their own members.

extension ProjectDefinitions {
    /// Reads the definitions of a compiled datafile.
    package init(_ datafile: Datafile) { self.init(datafile.source) }

    /// Reads the definitions of a datafile.
    ///
    /// - Parameter datafile: a datafile that compiles. Members of a wrong type count as absent.
    public init(_ datafile: JSONValue) {
        root = datafile.object ?? JSONObject()
        sdkKey = root["sdkKey"]?.string ?? ""
        rollouts = root["rollouts"]?.array ?? []
        audiences = root["typedAudiences"]?.array ?? []
        let annotations = root[Annotations.member]?.object
        assignmentLifetime = AssignmentLifetime(annotations)
        for member in annotations?["metrics"]?.object ?? JSONObject() {
            let metric = member.value.object.flatMap { MetricDefinition(stored: $0, key: Identifier(member.key)) }
            if let metric { metrics.append(metric) }
        }
        let conditions = Dictionary(
            audiences.map { ($0.object?.identifier("id") ?? "", $0.object?["conditions"] ?? .null) },
            uniquingKeysWith: { $1 })
        for object in holdoutObjects {
            if let holdout = HoldoutDefinition(object, audiences: conditions) { holdouts.append(holdout) }
        }
        for flag in root.objects("featureFlags") { flags.append(FlagDefinition(flag)) }
        readAllExperiments(conditions)
    }

    /// Reads the groups and all experiments, those outside of groups first. The flags must have been read.
    ///
    /// - Parameter conditions: the conditions of the datafile's audiences, by id.
    private mutating func readAllExperiments(_ conditions: [Identifier: JSONValue]) {
        let waiting = Set(flags.lazy.filter { !$0.isEnabled }.flatMap(\.waitingExperiments))
        let details = writtenDetails
        func experiments(of owner: JSONObject, groupID: Identifier?) -> [ExperimentDefinition] {
            owner.objects("experiments").map { object in
                var experiment = ExperimentDefinition(
                    object, groupID: groupID, audiences: conditions,
                    details: object["id"]?.string.flatMap { details?[$0]?.object })
                if waiting.contains(experiment.id) { experiment.undoPauseOfFlag() }
                return experiment
            }
        }
        for experiment in experiments(of: root, groupID: nil) { self.experiments.append(experiment) }
        for object in root.objects("groups") {
            let group = ExperimentGroup(object)
            groups.append(group)
            for experiment in experiments(of: object, groupID: group.id) { self.experiments.append(experiment) }
        }
    }

    // MARK: Edits of other processes

    /// Returns the definitions of a datafile that another process has made by editing a few elements of this one. Reads
    /// only these elements.
    ///
    /// - Parameters:
    ///   - datafile: the edited datafile.
    ///   - edit: the difference between the two datafiles.
    /// - Returns: `nil` if other definitions depend on the edited elements. Then the whole datafile must be read.
    func reading(_ datafile: JSONValue, _ edit: DatafileEdit) -> ProjectDefinitions? {
        guard let next = datafile.object else { return nil }
        let annotations = next[Annotations.member]?.object
        guard annotations?["metrics"] == root[Annotations.member]?.object?["metrics"],
            Self.areSame("id", at: edit.experiments, of: "experiments", root, next),
            Self.areSame("key", at: edit.flags, of: "featureFlags", root, next)
        else { return nil }
        var edited = self
        edited.root = next
        // The datafile was read and not generated, so the next edit compares everything.
        edited.generation = nil
        edited.sharedVariations = [:]
        edited.assignmentLifetime = AssignmentLifetime(annotations)
        guard readFlags(at: edit.flags, into: &edited), readExperiments(at: edit.experiments, into: &edited) else {
            return nil
        }
        edited.experiments.forgetChanges()
        edited.flags.forgetChanges()
        return edited
    }

    /// Reads the flags of an edited datafile at some indices.
    ///
    /// - Returns: false if one of the flags is off or was off before, because then its experiments depend on it.
    private func readFlags(at indices: [Int], into edited: inout ProjectDefinitions) -> Bool {
        let list = edited.root["featureFlags"]?.array
        for object in indices.compactMap({ list?[$0].object }) {
            let flag = FlagDefinition(object)
            guard flag.isEnabled, flags[flag.key]?.isEnabled == true else { return false }
            edited.flags.set(flag)
        }
        return true
    }

    /// Reads the experiments of an edited datafile at some indices, and those whose details differ.
    ///
    /// - Returns: false if several experiments have one id, or if a key has changed.
    private func readExperiments(at indices: [Int], into edited: inout ProjectDefinitions) -> Bool {
        let details = edited.writtenDetails
        var objects: [Identifier: JSONObject] = [:]
        for id in Self.changes(from: writtenDetails ?? JSONObject(), to: details ?? JSONObject()) {
            objects[id] = experiments.last(naming: id)?.source
        }
        let list = edited.root["experiments"]?.array
        for object in indices.compactMap({ list?[$0].object }) { objects[object.identifier("id") ?? ""] = object }
        for (id, object) in objects {
            guard experiments.keys(naming: id).count == 1, let former = experiments.last(naming: id) else {
                return false
            }
            let experiment = reading(object, replacing: former, details: details?[id.string]?.object)
            guard experiment.key == former.key else { return false }
            edited.experiments.set(experiment)
        }
        return true
    }

    /// Reads an experiment that stays in its group, and whose flags and audience stay the same.
    private func reading(
        _ object: JSONObject, replacing former: ExperimentDefinition, details: JSONObject?
    ) -> ExperimentDefinition {
        let audienceID = Identifier(former.audienceID)
        let audience = audiences.last { $0.object?.identifier("id") == audienceID }?.object
        var experiment = ExperimentDefinition(
            object, groupID: former.groupID,
            audiences: audience.map { [audienceID: $0["conditions"] ?? .null] } ?? [:], details: details)
        let isWaiting = owners(of: former.id).contains { flag in
            !flag.isEnabled && flag.waitingExperiments.contains(former.id)
        }
        if isWaiting { experiment.undoPauseOfFlag() }
        return experiment
    }

    /// Whether elements of a list have the same value of a member in two datafiles.
    private static func areSame(
        _ member: String, at indices: [Int], of list: String, _ former: JSONObject, _ edited: JSONObject
    ) -> Bool {
        let formerElements = former[list]?.array ?? []
        let editedElements = edited[list]?.array ?? []
        return indices.allSatisfy { formerElements[$0].object?[member] == editedElements[$0].object?[member] }
    }

    /// Returns the keys of the members that differ.
    private static func changes(from former: JSONObject, to edited: JSONObject) -> [Identifier] {
        let members = edited.filter { former[$0.key] != $0.value } + former.filter { edited[$0.key] == nil }
        return members.map { Identifier($0.key) }
    }
}

extension ExperimentDefinition {
    /// Sets the status of an experiment whose flag is off. The datafile has such an experiment paused, but it is
    /// running once the flag is on again.
    fileprivate mutating func undoPauseOfFlag() {
        if status == ExperimentStatus.paused.rawValue { status = ExperimentStatus.running.rawValue }
    }
}

// MARK: - Uploads

extension ProjectDefinitions {
    /// Returns the assignment lifetime in a stored datafile, without reading its other definitions; `nil` if it has
    /// none.
    package static func assignmentLifetime(in content: [UInt8]) -> AssignmentLifetime? {
        AssignmentLifetime((try? JSONParser().parse(content))?.object?[Annotations.member]?.object)
    }

    /// Returns the definitions with an assignment lifetime. Everything else of the datafile stays as it was uploaded.
    func withAssignmentLifetime(_ lifetime: AssignmentLifetime) -> ProjectDefinitions {
        var completed = self
        completed.assignmentLifetime = lifetime
        var annotations = root[Annotations.member]?.object ?? JSONObject()
        annotations[AssignmentLifetime.member] = .string(lifetime.text)
        completed.root[Annotations.member] = .object(annotations)
        return completed
    }

    /// Returns the definitions with the times at which the results of concluded experiments were frozen.
    ///
    /// - Parameter times: the times by the ids of the experiments.
    package func keepingResults(at times: [Identifier: Instant]) -> ProjectDefinitions {
        func completed(_ owner: JSONObject) -> JSONObject {
            guard let experiments = owner["experiments"]?.array else { return owner }
            var owner = owner
            owner["experiments"] = .array(
                experiments.map { element in
                    guard var experiment = element.object, let id = experiment.identifier("id"), let time = times[id],
                        var annotations = experiment[Annotations.member]?.object,
                        var conclusion = annotations["conclusion"]?.object
                    else { return element }
                    conclusion["frozenAt"] = .instant(time)
                    annotations["conclusion"] = .object(conclusion)
                    experiment[Annotations.member] = .object(annotations)
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

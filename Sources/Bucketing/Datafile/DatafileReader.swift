import JSON

/// Reads a datafile into a ``DatafileModel``, and collects every problem. If there is a former datafile, only the
/// elements that differ are read, and their ids and keys are collected in ``DatafileChanges``.
struct DatafileReader {
    private typealias Node = MemberReader.Node

    private let root: Node
    private var members = MemberReader()
    private var model: DatafileModel
    private var formerExperiments: FormerElements<ExperimentModel>
    private var formerFlags: FormerElements<FlagModel>
    /// The experiments that the former datafile does not have, or has differently.
    private var newExperiments: [ExperimentModel] = []
    /// The flags that the former datafile does not have, or has differently.
    private var newFlags: [FlagModel] = []

    /// Reads a datafile.
    ///
    /// - Returns: the model, and the parts that differ from the former datafile; `nil` if there is no former one.
    /// - Throws: ``DatafileError`` with every problem found.
    static func read(
        _ source: JSONValue, similarTo former: Datafile?
    ) throws(DatafileError) -> (model: DatafileModel, changes: DatafileChanges?) {
        var reader = DatafileReader(source, former)
        let changes = reader.read(former.map { DatafileChanges(source, since: $0) })
        let problems = reader.members.problems
        guard problems.isEmpty else { throw DatafileError(problems: problems) }
        return (reader.model, changes)
    }

    private init(_ source: JSONValue, _ former: Datafile?) {
        root = Node(value: source, pointer: JSONPointer())
        model = DatafileModel(source)
        formerExperiments = FormerElements(former?.elements.experiments ?? [])
        formerFlags = FormerElements(former?.elements.flags ?? [])
    }

    /// Reads all members of the root, in an order in which ids can be checked: experiments before the flags that refer
    /// to them.
    ///
    /// - Parameter changes: without the changed elements.
    /// - Returns: `changes` with the changed elements.
    private mutating func read(_ changes: DatafileChanges?) -> DatafileChanges? {
        var changes = changes
        guard root.value.object != nil else {
            members.reject(root.pointer, "a datafile must be an object; got \(root.value.kind)")
            return nil
        }
        readProject()
        readAudiences()
        readExperiments()
        changes?.add(experiments: newExperiments + formerExperiments.missing, of: model.readExperiments)
        readFlags()
        changes?.add(flags: newFlags + formerFlags.missing)
        readHoldouts()
        checkGroups()
        return changes
    }

    /// Records a problem for each experiment whose exclusion group does not exist.
    private mutating func checkGroups() {
        for experiment in model.experiments.values {
            guard Group.excludes(policy: experiment.groupPolicy), let id = experiment.groupID, model.groups[id] == nil
            else { continue }
            members.reject(["groups"], "no group has the id '\(id)', which the experiment '\(experiment.key)' names")
        }
    }

    private mutating func readProject() {
        let version = members.string("version", of: root)
        if members.problems.isEmpty, version != "4" {
            members.reject(["version"], "`version` must be '4'; got '\(version)'")
        }
        model.accountID = members.string("accountId", of: root)
        model.projectID = members.string("projectId", of: root)
        model.revision = members.string("revision", of: root)
        model.sdkKey = members.optionalString("sdkKey", of: root)
        model.environmentKey = members.optionalString("environmentKey", of: root)
        model.anonymizesIP = members.optionalBool("anonymizeIP", of: root) ?? false
        model.botFiltering = members.optionalBool("botFiltering", of: root)
        model.sendsFlagDecisions = members.optionalBool("sendFlagDecisions", of: root) ?? false
        model.attributes = members.objects("attributes", of: root).map { node in
            Attribute(id: members.id("id", of: node), key: members.id("key", of: node))
        }
        model.events = members.objects("events", of: root).map { node in
            Event(
                id: members.id("id", of: node), key: members.id("key", of: node),
                experimentIDs: members.ids("experimentIds", of: node)
            )
        }
    }

    /// Reads `audiences`, whose conditions are JSON encoded as a string, and `typedAudiences`, which replace them.
    private mutating func readAudiences() {
        var audiences = KeyedList<Audience>()
        let typed = members.objects("typedAudiences", of: root, isOptional: true)
        let typedIDs = Set(typed.map { members.id("id", of: $0) })
        for node in members.objects("audiences", of: root) {
            let id = members.id("id", of: node)
            let text = members.string("conditions", of: node)
            var conditions = JSONValue.null
            if !typedIDs.contains(id) {
                do {
                    conditions = try JSONParser().parse(text)
                } catch {
                    members.reject(node.pointer.appending("conditions"), "`conditions` must be JSON: \(error)")
                }
            }
            audiences.set(id, Audience(id: id, name: members.string("name", of: node), conditions: conditions))
        }
        for node in typed {
            let id = members.id("id", of: node)
            if node.value.object?["conditions"] == nil { members.reject(node.pointer, "`conditions` is required") }
            let conditions = node.value.object?["conditions"] ?? .null
            audiences.set(id, Audience(id: id, name: members.string("name", of: node), conditions: conditions))
        }
        model.audiences = audiences.values
    }

    // MARK: Experiments

    /// Reads the experiments, the delivery rules and the experiments of groups, in this order.
    private mutating func readExperiments() {
        for node in members.objects("experiments", of: root) {
            add(experiment(node))
        }
        for node in members.objects("rollouts", of: root, isOptional: true) {
            let rules = members.objects("experiments", of: node).map { experiment($0) }
            rules.forEach { add($0) }
            model.rollouts.set(members.id("id", of: node), rules.map(\.id).uniqued())
        }
        for node in members.objects("groups", of: root) {
            readGroup(node)
        }
        // The rest is missing from the new datafile.
        formerExperiments.end()
    }

    /// Takes over an experiment from the former datafile, or reads it.
    private mutating func experiment(_ node: Node) -> ExperimentModel {
        let known = formerExperiments.model(of: node.value)
        let experiment = known ?? members.experiment(node)
        if known == nil { newExperiments.append(experiment) }
        model.readExperiments.append(ReadElement(source: node.value, model: experiment))
        return experiment
    }

    private mutating func add(_ experiment: ExperimentModel) {
        model.experiments.set(experiment.id, experiment)
    }

    private mutating func readGroup(_ node: Node) {
        let id = members.id("id", of: node)
        let policy = members.string("policy", of: node)
        let trafficAllocation = members.trafficAllocation(of: node)
        var experimentIDs: [Identifier] = []
        for element in members.objects("experiments", of: node) {
            var experiment = experiment(element)
            // Read again for each experiment, which also repeats the problem of a wrong member.
            experiment.groupID = members.id("id", of: node)
            experiment.groupPolicy = members.string("policy", of: node)
            add(experiment)
            experimentIDs.append(experiment.id)
        }
        let group = Group(
            id: id, name: node.annotations?["name"]?.string, policy: policy, trafficAllocation: trafficAllocation,
            experimentIDs: experimentIDs)
        model.groups.set(group.id, group)
    }

    // MARK: Flags and holdouts

    private mutating func readFlags() {
        for node in members.objects("featureFlags", of: root, isOptional: true) {
            let flag = knownFlag(node) ?? readFlag(node)
            model.readFlags.append(ReadElement(source: node.value, model: flag))
            model.flags.set(flag.key, flag)
        }
        // The rest is missing from the new datafile.
        formerFlags.end()
    }

    /// Returns a flag that the former datafile has, too; `nil` if the flag must be read. Checks its ids, because the
    /// experiments that it refers to may be gone.
    private mutating func knownFlag(_ node: Node) -> FlagModel? {
        guard let flag = formerFlags.model(of: node.value) else { return nil }
        let (experiments, rollouts) = (model.experiments, model.rollouts)
        members.checkExperiments(flag.experimentIDs, of: node) { experiments[$0] != nil }
        members.checkRollout(flag.rolloutID, of: node) { rollouts[$0] != nil }
        return flag
    }

    /// Reads a flag that is new or has changed.
    private mutating func readFlag(_ node: Node) -> FlagModel {
        let (experiments, rollouts) = (model.experiments, model.rollouts)
        let flag = members.flag(
            node, hasExperiment: { experiments[$0] != nil }, hasRollout: { rollouts[$0] != nil })
        newFlags.append(flag)
        return flag
    }

    private mutating func readHoldouts() {
        for node in members.objects("holdouts", of: root, isOptional: true) {
            model.holdouts.append(members.holdout(node, includedRules: nil))
        }
        for node in members.objects("localHoldouts", of: root, isOptional: true) {
            // Optimizely's Python SDK skips a local holdout without rules.
            guard let rules = members.optionalIDs("includedRules", of: node) else { continue }
            model.holdouts.append(members.holdout(node, includedRules: rules))
        }
    }
}

extension [Identifier] {
    /// Returns each id once, at its first position.
    package func uniqued() -> [Identifier] {
        var seen: Set<Identifier> = []
        return filter { seen.insert($0).inserted }
    }
}

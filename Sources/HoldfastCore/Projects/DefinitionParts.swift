import Bucketing
import Definitions
import JSON
import Storage

/// Finds the elements of datafiles that one definition consists of, now or in a former version.
///
/// An experiment, for example, consists of its element of `experiments`, its details in `holdfast`, its audience and
/// the flag whose rule it is. A datafile with these elements only is small, but describes the experiment like the whole
/// datafile. So a history reads no others.
///
/// ``addKeys(of:)`` finds the elements in the current definitions. ``versions(_:)`` reads the former versions of these
/// elements, and finds those that former versions refer to. ``state(in:_:)`` and ``state(in:)`` then return the
/// definition as a former datafile has it.
struct DefinitionParts: Sendable {
    private let kind: DefinitionSet.Kind
    private let key: Identifier
    /// The keys of the elements, in whatever list they are: keys of experiments and flags, ids of experiments, and ids
    /// of audiences.
    private(set) var keys: Set<Identifier>
    /// The keys of the experiments that belong to the definition: the experiment itself, or those of a flag's rules.
    private var experiments: Set<Identifier> = []

    init(_ kind: DefinitionSet.Kind, _ key: Identifier) {
        self.kind = kind
        self.key = key
        keys = [key]
        if kind == .experiments { experiments = [key] }
    }

    /// Reads all versions of the elements. Repeats the query as long as the versions that it returns refer to further
    /// elements. Mostly one query suffices, because the current definition refers to all of them.
    ///
    /// - Parameter read: returns the versions of the elements with some keys.
    mutating func versions(
        _ read: (Set<Identifier>) async throws(StorageError) -> DefinitionVersions
    ) async throws(StorageError) -> DefinitionVersions {
        while true {
            let keysOfQuery = keys
            let versions = try await read(keysOfQuery)
            for row in versions.rows { addKeys(of: row.element) }
            if keys == keysOfQuery { return versions }
        }
    }

    // MARK: States

    /// Returns the definition in a datafile that is stored in parts; `nil` if the datafile does not have it.
    ///
    /// - Parameters:
    ///   - elements: the elements with the ``keys``.
    ///   - base: the datafile without elements.
    func state(in elements: [DatafileParts.Element], _ base: [UInt8]) throws(CoreError) -> DefinitionState? {
        ProjectDefinitions(try Datafile.document(DatafileParts(base: base, elements: elements))).state(of: kind, key)
    }

    /// Returns the definition in a datafile that is stored whole; `nil` if the datafile does not have it.
    func state(in datafile: JSONValue) -> DefinitionState? {
        guard let root = datafile.object else { return nil }
        // An uploaded datafile may have ids that no other version has.
        var parts = self
        parts.addKeys(of: root)
        return ProjectDefinitions(.object(parts.reduced(root))).state(of: kind, key)
    }

    /// Returns a datafile with only the elements that the definition consists of.
    private func reduced(_ root: JSONObject) -> JSONObject {
        var reduced = root
        let flags = root.objects("featureFlags").filter { flag in
            let isNamed = flag.identifier("key").map { keys.contains($0) } ?? false
            // In an uploaded datafile, only the flag refers to the experiment, and not the experiment to its flag.
            return isNamed || flag.identifiers("experimentIds").contains { keys.contains($0) }
        }
        reduced["featureFlags"] = .array(flags.map { .object($0) })
        reduced["experiments"] = selected("experiments", of: root, by: "key")
        let groups = root.objects("groups").map { group in
            var group = group
            group["experiments"] = selected("experiments", of: group, by: "key")
            return JSONValue.object(group)
        }
        reduced["groups"] = .array(groups)
        reduced["typedAudiences"] = selected("typedAudiences", of: root, by: "id")
        reduced["rollouts"] = []
        if var annotations = root[Annotations.member]?.object {
            for list in DatafileParts.ownLists {
                guard let members = annotations[list]?.object else { continue }
                annotations[list] = .object(JSONObject(members.filter { keys.contains(Identifier($0.key)) }))
            }
            reduced[Annotations.member] = .object(annotations)
        }
        return reduced
    }

    /// Returns the elements of a list that have one of the ``keys``.
    ///
    /// - Parameter member: the member that has the key of an element.
    private func selected(_ list: String, of owner: JSONObject, by member: String) -> JSONValue {
        let elements = owner.objects(list).filter { element in
            element.identifier(member).map { keys.contains($0) } ?? false
        }
        return .array(elements.map { .object($0) })
    }

    // MARK: Keys

    /// Adds the keys of the elements that the definition consists of in some definitions.
    mutating func addKeys(of definitions: ProjectDefinitions) {
        switch kind {
        case .experiments:
            guard let experiment = definitions.experiments[key] else { return }
            keys.formUnion(definitions.owners(of: experiment.id).map(\.key))
            addExperiment(id: experiment.id, ruleOf: experiment.flagKey)
        case .flags:
            guard let flag = definitions.flags[key] else { return }
            for experiment in definitions.experiments(of: flag) {
                addExperiment(key: experiment.key)
                addExperiment(id: experiment.id, ruleOf: nil)
            }
        case .holdouts:
            let holdout = definitions.holdouts[key] ?? HoldoutDefinition(key: key, sdkKey: definitions.sdkKey)
            keys.insert(Identifier(holdout.audienceID))
        case .attributes, .segments, .metrics, .groups, .webhooks: break
        }
    }

    /// Adds the keys of the elements that a version of an element refers to.
    private mutating func addKeys(of element: DatafileParts.Element) {
        let list: Identifier = element.name.isGrouped ? "experiments" : element.name.list
        guard list == "featureFlags" || list == "experiments", let object = try? Datafile.parsed(element.body).object
        else { return }
        addKeys(of: object, keyed: element.name.key, in: list)
    }

    /// Adds the keys of the elements that a whole datafile has for the definition.
    private mutating func addKeys(of root: JSONObject) {
        addKeys(of: root.objects("featureFlags"), in: "featureFlags")
        let grouped = root.objects("groups").flatMap { $0.objects("experiments") }
        addKeys(of: root.objects("experiments") + grouped, in: "experiments")
        guard kind == .holdouts else { return }
        for holdout in HoldoutDefinition.lists.flatMap({ root.objects($0) }) where holdout.identifier("key") == key {
            // The ids of a holdout and of its audience are related like those of an experiment.
            if let id = holdout.identifier("id") { addExperiment(id: id, ruleOf: nil) }
        }
    }

    /// Searches a list for the elements that have one of the ``keys``, and adds the keys of the elements to which these
    /// refer.
    private mutating func addKeys(of elements: [JSONObject], in list: Identifier) {
        for object in elements {
            if let key = object.identifier("key"), keys.contains(key) { addKeys(of: object, keyed: key, in: list) }
        }
    }

    /// Adds the keys of the elements that a flag or an experiment refers to.
    ///
    /// - Parameters:
    ///   - elementKey: the key of the flag or the experiment.
    ///   - list: `featureFlags` or `experiments`.
    private mutating func addKeys(of object: JSONObject, keyed elementKey: Identifier, in list: Identifier) {
        let annotations = object[Annotations.member]?.object
        switch list {
        case "featureFlags":
            guard kind == .flags, elementKey == key else { return }
            // A rule with a variation is a delivery, which is no element of the list of experiments.
            for rule in annotations?.objects("rules") ?? [] where rule["variation"] == nil {
                if let ruleKey = rule.identifier("key") { addExperiment(key: ruleKey) }
            }
        case "experiments":
            guard experiments.contains(elementKey), let id = object.identifier("id") else { return }
            addExperiment(id: id, ruleOf: kind == .experiments ? annotations?.identifier("flag") : nil)
        default: break
        }
    }

    private mutating func addExperiment(key: Identifier) {
        experiments.insert(key)
        keys.insert(key)
    }

    /// Adds the id of an experiment, which names its details, and the id of its audience.
    ///
    /// - Parameter flag: the flag whose rule the experiment is; `nil` if the experiment is no rule, or if the flag need
    ///   not be read.
    private mutating func addExperiment(id: Identifier, ruleOf flag: Identifier?) {
        keys.formUnion([id, Identifier(GivenAudience.id(of: id))])
        if let flag { keys.insert(flag) }
    }
}

extension DatafileParts.Name {
    /// Whether the element is an experiment of a group.
    var isGrouped: Bool { list.string.hasPrefix(DatafileParts.list(ofGroup: "").string) }
}

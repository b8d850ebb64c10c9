import Bucketing
import Definitions
import JSON
import Storage

/// The elements of datafiles that a definition consists of, or did, by their keys. Together with the rest of the datafile they
/// are a small datafile, which says of the definition what the whole says.
struct DefinitionParts: Sendable {
    private let kind: DefinitionSet.Kind
    private let key: Identifier
    private(set) var keys: Set<Identifier>
    /// The keys of the experiments that the definition is about.
    private var experiments: Set<Identifier> = []

    init(_ kind: DefinitionSet.Kind, _ key: Identifier) {
        (self.kind, self.key, keys) = (kind, key, [key])
        if kind == .experiments { experiments = [key] }
    }

    /// Reads the elements, again and again if those that are found name others. Mostly the present definition names all.
    mutating func versions(
        _ read: (Set<Identifier>) async throws(StorageError) -> DefinitionVersions
    ) async throws(StorageError) -> DefinitionVersions {
        while true {
            let known = keys
            let versions = try await read(known)
            for row in versions.rows { add(row.element) }
            if keys == known { return versions }
        }
    }

    // MARK: States

    /// Returns the definition in a datafile that is stored in parts.
    func state(in elements: [DatafileParts.Element], _ base: [UInt8]) throws(CoreError) -> DefinitionState? {
        ProjectDefinitions(try Datafile.document(DatafileParts(base: base, elements: elements))).state(of: kind, key)
    }

    /// Returns the definition in a whole datafile.
    func state(in datafile: JSONValue) -> DefinitionState? {
        guard var root = datafile.object else { return nil }
        // An upload may have given ids that no other version has.
        var parts = self
        let groups = root.objects("groups")
        parts.add(root.objects("featureFlags"), "featureFlags")
        parts.add(
            root.objects("experiments") + groups.flatMap { $0.objects("experiments") }, "experiments")
        for holdout in HoldoutDefinition.lists.flatMap({ root.objects($0) }) where kind == .holdouts {
            if holdout.identifier("key") == key, let id = holdout.identifier("id") { parts.add(id, ruleOf: nil) }
        }
        // A flag of a datafile names experiments that do not name it.
        root["featureFlags"] = .array(
            root.objects("featureFlags").filter { flag in
                flag.identifier("key").map { parts.keys.contains($0) } ?? false
                    || flag.identifiers("experimentIds").contains { parts.keys.contains($0) }
            }.map { .object($0) })
        root["experiments"] = parts.selected(root, "experiments", by: "key")
        root["groups"] = .array(
            groups.map { group in
                var group = group
                group["experiments"] = parts.selected(group, "experiments", by: "key")
                return .object(group)
            })
        root["typedAudiences"] = parts.selected(root, "typedAudiences", by: "id")
        root["rollouts"] = []
        if var own = root[Annotations.member]?.object {
            for list in DatafileParts.ownLists {
                guard let members = own[list]?.object else { continue }
                own[list] = .object(JSONObject(members.filter { parts.keys.contains(Identifier($0.key)) }))
            }
            root[Annotations.member] = .object(own)
        }
        return ProjectDefinitions(.object(root)).state(of: kind, key)
    }

    private func selected(_ owner: JSONObject, _ list: String, by member: String) -> JSONValue {
        .array(
            owner.objects(list).filter { $0.identifier(member).map { keys.contains($0) } ?? false }
                .map { .object($0) })
    }

    // MARK: Keys

    mutating func add(_ definitions: ProjectDefinitions) {
        switch kind {
        case .experiments:
            guard let experiment = definitions.experiments[key] else { return }
            keys.formUnion(definitions.owners(of: experiment.id).map(\.key))
            add(experiment.id, ruleOf: experiment.flagKey)
        case .flags:
            guard let flag = definitions.flags[key] else { return }
            for experiment in definitions.experiments(of: flag) {
                add(experimentKey: experiment.key)
                add(experiment.id, ruleOf: nil)
            }
        case .holdouts:
            let holdout = definitions.holdouts[key] ?? HoldoutDefinition(key: key, sdkKey: definitions.sdkKey)
            keys.insert(Identifier(holdout.audienceID))
        case .attributes, .segments, .metrics, .groups, .webhooks: break
        }
    }

    mutating func add(_ element: DatafileParts.Element) {
        guard element.name.list == "featureFlags" || element.name.list == "experiments" || element.name.isGrouped,
            let object = try? Datafile.parsed(element.body).object
        else { return }
        add(object, element.name.isGrouped ? "experiments" : element.name.list, element.name.key)
    }

    private mutating func add(_ elements: [JSONObject], _ list: Identifier) {
        for object in elements {
            if let key = object.identifier("key"), keys.contains(key) { add(object, list, key) }
        }
    }

    private mutating func add(_ object: JSONObject, _ list: Identifier, _ key: Identifier) {
        let own = object[Annotations.member]?.object
        switch list {
        case "featureFlags":
            guard kind == .flags, key == self.key else { return }
            for rule in own?.objects("rules") ?? [] where rule["variation"] == nil {
                if let key = rule.identifier("key") { add(experimentKey: key) }
            }
        case "experiments":
            guard experiments.contains(key), let id = object.identifier("id") else { return }
            add(id, ruleOf: kind == .experiments ? own?.identifier("flag") : nil)
        default: break
        }
    }

    private mutating func add(experimentKey key: Identifier) {
        experiments.insert(key)
        keys.insert(key)
    }

    private mutating func add(_ id: Identifier, ruleOf flag: Identifier?) {
        keys.formUnion([id, Identifier(GivenAudience.id(of: id))])
        if let flag { keys.insert(flag) }
    }
}

extension DatafileParts.Name {
    /// Whether it is an experiment of a group.
    var isGrouped: Bool { list.string.hasPrefix(DatafileParts.list(ofGroup: "").string) }
}

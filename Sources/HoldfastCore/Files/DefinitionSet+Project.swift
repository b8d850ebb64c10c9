import Bucketing
public import Definitions
import JSON
public import Storage

extension DefinitionSet {
    /// Describes the definitions that were made over the API. Elements that come from an uploaded datafile are left
    /// out, because the API cannot define them again.
    ///
    /// - Parameters:
    ///   - definitions: the definitions of the project; `nil` if there is no project yet.
    ///   - webhooks: the webhooks of this project, and those that are for all projects; `nil` to leave out webhooks.
    ///   - former: the definitions before an edit, and the set that describes them; `nil` if they are unknown. The
    ///     elements that the edit did not touch are taken from that set.
    public init(
        _ definitions: ProjectDefinitions?, _ schema: AttributeSchema, webhooks: [Webhook]? = nil,
        since former: (definitions: ProjectDefinitions, set: DefinitionSet)? = nil
    ) {
        self[.webhooks] = (webhooks ?? []).map {
            var object = JSONObject(.init(key: "key", value: .string($0.key)))
            Webhook.Definition.members.writeFile($0.definition, to: &object)
            return Element(key: Identifier($0.key), object: object)
        }
        saysWebhooks = webhooks?.isEmpty == false
        self[.attributes] = schema.attributes.map { Element(key: $0.name, object: $0.json.object ?? JSONObject()) }
        self[.segments] = schema.segments.values.sorted { $0.name < $1.name }.map {
            Element(key: $0.name, object: $0.json)
        }
        guard let definitions else { return }
        project = definitions.assignmentLifetime.map {
            JSONObject(.init(key: AssignmentLifetime.apiMember, value: .string($0.text)))
        }
        func sorted(_ elements: [Element]) -> [Element] { elements.sorted { $0.key < $1.key } }
        self[.metrics] = sorted(definitions.metrics.map { Element(key: $0.key, object: $0.definition) })
        self[.groups] = sorted(definitions.groups.compactMap { definitions.element(of: $0) })
        let touched = former.map { definitions.touchedElements(since: $0.definitions) }
        self[.experiments] = sorted(
            Self.elements(
                definitions.experiments, touched: touched?.experiments, since: former?.set[.experiments],
                definitions.listedObject))
        self[.flags] = sorted(
            Self.elements(
                definitions.flags, touched: touched?.flags, since: former?.set[.flags], definitions.listedObject))
        // Holdouts keep their order, because the first one that applies to a user counts.
        self[.holdouts] = definitions.holdouts.map { Element(key: $0.key, object: $0.definition) }
    }

    /// Describes the definitions of a list.
    ///
    /// - Parameters:
    ///   - touched: the keys of the definitions that may differ from former ones; `nil` for all.
    ///   - former: the elements as they were described before.
    ///   - describe: returns `nil` for a definition that is left out.
    private static func elements<Defined>(
        _ list: DefinitionList<Defined>, touched: Set<Identifier>?, since former: [Element]?,
        _ describe: (Defined) -> JSONObject?
    ) -> [Element] {
        guard let touched, let former else {
            return list.compactMap { element in
                describe(element).map { Element(key: element.listKey, object: $0) }
            }
        }
        let described = list.all(naming: [], orKeyed: Array(touched)).compactMap { element in
            describe(element).map { Element(key: element.listKey, object: $0) }
        }
        return former.filter { !touched.contains($0.key) } + described
    }
}

extension ProjectDefinitions {
    /// Returns the keys of the experiments and flags whose form in files an edit may have changed: those that the edit
    /// touched, the flags of touched experiments, and the experiments of touched flags.
    ///
    /// - Parameter former: the definitions before the edit. A flag may have lost an experiment, so both states are
    ///   searched.
    fileprivate func touchedElements(
        since former: ProjectDefinitions
    ) -> (experiments: Set<Identifier>, flags: Set<Identifier>) {
        var touchedExperiments = experiments.touched
        var touchedFlags = flags.touched
        for definitions in [former, self] {
            let ids = experiments.touched.compactMap { definitions.experiments[$0]?.id }
            let owners = definitions.flags.all(
                naming: ids + experiments.touched, orKeyed: Array(experiments.touched) + flags.touched)
            for flag in owners {
                touchedFlags.insert(flag.key)
                touchedExperiments.formUnion(definitions.experiments(of: flag).map(\.key))
            }
        }
        return (touchedExperiments, touchedFlags)
    }
}

import Bucketing
import Definitions
import JSON
import Storage

/// What in an element of a set is a change.
extension DefinitionSetRun {
    /// Returns the body of the `PUT` that makes an element what the set says: the members that differ from the current
    /// state, and the defaults of members that the element has now and the set leaves out.
    func changes(_ object: JSONObject, _ kind: DefinitionSet.Kind, _ key: Identifier) -> JSONObject {
        let object = kind == .flags ? withExplicitExperiments(object) : object
        guard let shown = shown[kind]?[key] else { return object }
        var body = object
        if kind == .experiments, Self.areSameVariations(body["variations"], shown["variations"]) {
            body["variations"] = shown["variations"]
        }
        // If the kind of a metric changes, the former members do not apply to the new kind.
        let changesKind = kind == .metrics && object["kind"] != nil && object["kind"] != shown["kind"]
        if !changesKind {
            for member in shown where body[member.key] == nil {
                if let value = kind.defaults[member.key] { body[member.key] = value }
            }
        }
        // A `PUT` keeps members of a plan that it leaves out; a set removes them.
        if kind == .experiments, var plan = body["plan"]?.object {
            for name in DecisionRule.members.names where plan[name] == nil { plan[name] = .null }
            body["plan"] = .object(plan)
        }
        return DefinitionChanges(of: .object(shown)).members(of: .object(body)).object ?? body
    }

    /// Whether the variations of a file equal the current ones. A file may leave out ids and weights, or have keys
    /// only.
    private static func areSameVariations(_ given: JSONValue?, _ shown: JSONValue?) -> Bool {
        guard let given = given?.array, let shown = shown?.array?.compactMap(\.object), given.count == shown.count
        else { return false }
        let givenElements = given.map { $0.object ?? JSONObject(.init(key: "key", value: $0)) }
        let weightedCount = givenElements.count { $0["weight"] != nil }
        // If only some variations have a weight, the set is wrong, and must not pass as unchanged.
        guard !givenElements.isEmpty, weightedCount == 0 || weightedCount == givenElements.count else { return false }
        // Without weights the variations get equal shares. Of a bandit, no weights are shown.
        let hasEqualShares = Set(shown.compactMap { $0["weight"]?.double }).count <= 1
        return zip(givenElements, shown).allSatisfy { element, shown in
            let hasSameWeight = element["weight"].map { $0.double == shown["weight"]?.double } ?? hasEqualShares
            let hasSameID = element["id"].map { $0 == shown["id"] } ?? true
            return element["key"] == shown["key"] && hasSameWeight && hasSameID
                && element.allSatisfy { ["key", "id", "weight"].contains($0.key) }
        }
    }

    /// Returns a flag whose rules also say what they imply about their experiments: a rule without a group removes the
    /// experiment from its group, and a rule without a status restores an archived experiment.
    private func withExplicitExperiments(_ flag: JSONObject) -> JSONObject {
        guard let rules = flag["rules"]?.array else { return flag }
        var flag = flag
        flag["rules"] = .array(
            rules.map { rule in
                guard var object = rule.object, var experiment = object["experiment"]?.object,
                    let known = object.identifier("key").flatMap({ definitions.experiments[$0] })
                else { return rule }
                if experiment["group"] == nil, definitions.group(of: known) != nil { experiment["group"] = .null }
                if experiment["status"] == nil { experiment["status"] = known.restoredStatus }
                object["experiment"] = .object(experiment)
                return .object(object)
            })
        return flag
    }
}

extension DefinitionSet.Kind {
    /// The values of members that an element leaves out. A member without a default keeps its value, because it may
    /// change during the operation of an experiment.
    fileprivate var defaults: [String: JSONValue] {
        switch self {
        case .attributes, .segments, .groups: [:]
        case .metrics: MetricDefinition.members.defaults
        case .experiments: ExperimentView.members.defaults
        case .flags: FlagView.members.defaults
        case .holdouts: HoldoutDefinition.members.defaults
        case .webhooks: Webhook.Definition.members.defaults
        }
    }
}

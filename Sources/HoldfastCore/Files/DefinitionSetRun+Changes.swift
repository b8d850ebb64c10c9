import Bucketing
import Definitions
import JSON
import Storage

/// Turns elements of a set into bodies of `PUT` requests.
///
/// The two differ in the members that they leave out: in a set, a missing member gets its default; in a `PUT`, it keeps
/// its value. A member that is equal to the current one is left out of the body, because a `PUT` may refuse it as a
/// change.
extension DefinitionSetRun {
    /// Returns the body of the `PUT` that changes an element into what the set says; empty if nothing differs.
    ///
    /// - Parameter element: the element in the set.
    func changes(_ element: JSONObject, _ kind: DefinitionSet.Kind, _ key: Identifier) -> JSONObject {
        var body = kind == .flags ? withExplicitExperiments(element) : element
        // A new element gets its defaults from the `PUT`.
        guard let current = shown[kind]?[key] else { return body }
        if kind == .experiments {
            if Self.areSameVariations(body["variations"], current["variations"]) {
                body["variations"] = current["variations"]
            }
            body["plan"] = Self.completePlan(body["plan"])
        }
        // If the kind of a metric changes, the former members do not apply to the new kind.
        let changesKind = kind == .metrics && body["kind"] != nil && body["kind"] != current["kind"]
        if !changesKind {
            for member in current where body[member.key] == nil {
                if let value = kind.defaults[member.key] { body[member.key] = value }
            }
        }
        return DefinitionChanges(of: .object(current)).members(of: .object(body)).object ?? body
    }

    /// Returns the plan of an experiment with null for each missing member, which removes the current value.
    private static func completePlan(_ plan: JSONValue?) -> JSONValue? {
        guard var members = plan?.object else { return plan }
        for name in DecisionRule.members.names where members[name] == nil { members[name] = .null }
        return .object(members)
    }

    /// Whether the variations of a set mean the current ones, although they have another form: a set may leave out ids
    /// and weights, or have keys only.
    ///
    /// - Parameters:
    ///   - given: the variations in the set: objects, or keys.
    ///   - current: the variations in the form of files.
    private static func areSameVariations(_ given: JSONValue?, _ current: JSONValue?) -> Bool {
        guard let given = given?.array?.map({ $0.object ?? JSONObject(.init(key: "key", value: $0)) }),
            let current = current?.array?.compactMap(\.object), !given.isEmpty, given.count == current.count
        else { return false }
        // If only some variations have a weight, the set is wrong, and must not pass as unchanged.
        let weightCount = given.count { $0["weight"] != nil }
        guard weightCount == 0 || weightCount == given.count else { return false }
        // Variations without weights get equal shares. The form of files has no weights for a bandit, which changes
        // them.
        let haveEqualShares = Set(current.compactMap { $0["weight"]?.double }).count <= 1
        return zip(given, current).allSatisfy { given, current in
            let hasSameWeight = given["weight"].map { $0.double == current["weight"]?.double } ?? haveEqualShares
            let hasSameID = given["id"].map { $0 == current["id"] } ?? true
            let hasOtherMembers = given.contains { !["key", "id", "weight"].contains($0.key) }
            return given["key"] == current["key"] && hasSameWeight && hasSameID && !hasOtherMembers
        }
    }

    /// Returns a flag whose rules state explicitly what a missing member means: a rule without a group removes its
    /// experiment from the group, and a rule without a status restores an archived experiment.
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
    /// The values that the members get if a set leaves them out. A member without a default keeps its value, because it
    /// may change while an experiment runs.
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

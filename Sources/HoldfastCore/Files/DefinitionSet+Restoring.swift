import Bucketing
import Definitions
import JSON
import Storage

extension DefinitionSet {
    /// Creates the set that restores an element to a former state.
    ///
    /// Members that change while an experiment runs stay as they are now: ids, the status, whether enrollment is
    /// open, the conclusion, the schedule and the ramp, and whether a flag is on. An element that has been deleted is
    /// created again as it was.
    ///
    /// - Parameters:
    ///   - state: the former state.
    ///   - definitions: the current definitions.
    init(
        restoring state: DefinitionState, of kind: Kind, _ key: Identifier, in definitions: ProjectDefinitions
    ) {
        self.init()
        var object = state.object
        object[kind.keyMember] = JSONValue(key)
        let current = definitions.state(of: kind, key)?.object
        switch kind {
        case .experiments: definitions.restore(&object, key, current)
        case .flags:
            if let current { object.replace(["enabled"], byThoseOf: current) }
            definitions.restoreRules(of: &object)
        case .holdouts: if let current { object.replace(["status"], byThoseOf: current) }
        case .attributes, .segments, .metrics, .groups, .webhooks: break
        }
        self[kind] = [Element(key: key, object: object, place: JSONPointer().appending(kind.rawValue).appending(0))]
    }
}

extension ProjectDefinitions {
    /// Changes the former state of an experiment into one that can be applied to the current definitions.
    ///
    /// - Parameters:
    ///   - object: the former state.
    ///   - current: the current state; `nil` if the experiment has been deleted.
    fileprivate func restore(_ object: inout JSONObject, _ key: Identifier, _ current: JSONObject?) {
        guard let experiment = experiments[key], let current else { return }
        object.replace(["id", "enrollment", "schedule", "ramp", "conclusion"], byThoseOf: current)
        object[DefinitionSet.allocation] = nil
        object["status"] = experiment.keptStatus
        // The id of a variation never changes, so it need not be given again.
        let known = Set(experiment.variations.map(\.key) + experiment.retiredVariations.map(\.key))
        guard let variations = object["variations"]?.array else { return }
        object["variations"] = .array(
            variations.map { variation in
                guard var variation = variation.object, let key = variation.identifier("key"), known.contains(key)
                else { return variation }
                variation["id"] = nil
                return .object(variation)
            })
    }

    /// Changes the experiments in the former rules of a flag, so that their ids, enrollment and status stay as they are
    /// now.
    fileprivate func restoreRules(of flag: inout JSONObject) {
        guard let rules = flag["rules"]?.array else { return }
        flag["rules"] = .array(
            rules.map { rule in
                guard var rule = rule.object, var experiment = rule["experiment"]?.object,
                    let known = rule.identifier("key").flatMap({ experiments[$0] })
                else { return rule }
                for member in ["id", "enrollment"] { experiment[member] = nil }
                experiment["status"] = known.keptStatus
                rule["experiment"] = .object(experiment)
                return .object(rule)
            })
    }
}

extension ExperimentDefinition {
    /// The status to give in a set so that the status of the experiment stays as it is. An archived experiment needs
    /// one, because a set without a status restores it. `nil` for any other experiment, which keeps its status if the
    /// set gives none.
    fileprivate var keptStatus: JSONValue? {
        isArchived ? .string(ExperimentStatus.name(of: status)) : nil
    }
}

extension JSONObject {
    /// Copies members from another object. A member that the other object lacks is removed.
    fileprivate mutating func replace(_ names: [String], byThoseOf other: JSONObject) {
        for name in names { self[name] = other[name] }
    }
}

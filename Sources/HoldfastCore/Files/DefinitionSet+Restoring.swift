import Bucketing
import Definitions
import JSON
import Storage

extension DefinitionSet {
    /// Returns the set that puts a definition back as it was.
    ///
    /// What has a life of its own stays as it is: ids, the status, whether enrollment is open, the conclusion, the schedule
    /// and the ramp, and whether a flag is on. A definition that is gone is made again as it was.
    ///
    /// - Parameters:
    ///   - state: the definition as it was.
    ///   - definitions: the present ones.
    init(
        restoring state: DefinitionState, of kind: Kind, _ key: Identifier, in definitions: ProjectDefinitions
    ) {
        self.init()
        var object = state.object
        object[kind.keyMember] = JSONValue(key)
        let present = definitions.state(of: kind, key)?.object
        switch kind {
        case .experiments: definitions.restore(&object, key, present)
        case .flags:
            if let present { object.keep(["enabled"], of: present) }
            definitions.restoreRules(of: &object)
        case .holdouts: if let present { object.keep(["status"], of: present) }
        case .attributes, .segments, .metrics, .groups, .webhooks: break
        }
        self[kind] = [Element(key: key, object: object, place: JSONPointer().appending(kind.rawValue).appending(0))]
    }
}

extension ProjectDefinitions {
    fileprivate func restore(_ object: inout JSONObject, _ key: Identifier, _ present: JSONObject?) {
        guard let experiment = experiments[key], let present else { return }
        object.keep(["id", "enrollment", "schedule", "ramp", "conclusion"], of: present)
        object[DefinitionSet.allocation] = nil
        object["status"] = experiment.keptStatus
        // A variation with a key has the id that it ever had.
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
    /// What a set says of the status so that it stays as it is; `nil` for nothing. An archived experiment that a set names
    /// without a status would be brought back.
    fileprivate var keptStatus: JSONValue? {
        isArchived ? .string(ExperimentStatus.name(of: status)) : nil
    }
}

extension JSONObject {
    /// Takes members of another object in the place of its own.
    fileprivate mutating func keep(_ names: [String], of other: JSONObject) {
        for name in names { self[name] = other[name] }
    }
}

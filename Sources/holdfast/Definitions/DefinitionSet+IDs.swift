import struct Bucketing.Identifier
import Definitions
import HoldfastCore
import JSON

/// Removal of ids, for definitions that are carried to another project.
extension DefinitionSet {
    /// Returns the set without the ids of experiments and variations, and without members that depend on them.
    ///
    /// - Parameter known: definitions that select experiments. Only experiments whose keys these definitions have lose
    ///   their ids. With `nil`, all experiments lose their ids.
    func withoutIDs(of known: DefinitionSet? = nil) -> DefinitionSet {
        // A rule of a flag that is an experiment has the experiment's key.
        let keys = known.map { known in
            Set(known[.experiments].map(\.key.string) + known[.flags].flatMap { Self.rules($0).compactMap(Self.key) })
        }
        var set = self
        set[.experiments] = self[.experiments].map { experiment in
            guard keys?.contains(experiment.key.string) ?? true else { return experiment }
            return Self.withoutIDs(experiment)
        }
        set[.flags] = self[.flags].map { flag in
            guard flag.object["rules"]?.array != nil else { return flag }
            var flag = flag
            let rules = Self.rules(flag).map { rule in
                if let keys, let key = Self.key(rule), !keys.contains(key) { return rule }
                return Self.withoutExperimentID(rule)
            }
            flag.object["rules"] = .array(rules)
            return flag
        }
        return set
    }

    /// Returns an experiment without its id, the ids of its variations, and the allocation of bucket values to them.
    private static func withoutIDs(_ experiment: Element) -> Element {
        var experiment = experiment
        experiment.object["id"] = nil
        experiment.object["traffic_allocation"] = nil
        if let variations = experiment.object["variations"]?.array {
            experiment.object["variations"] = .array(variations.map { Self.withoutID($0) })
        }
        return experiment
    }

    /// Returns the rule of a flag without the id of its experiment.
    private static func withoutExperimentID(_ rule: JSONValue) -> JSONValue {
        guard var object = rule.object, let experiment = object["experiment"] else { return rule }
        object["experiment"] = withoutID(experiment)
        return .object(object)
    }

    private static func rules(_ flag: Element) -> [JSONValue] { flag.object["rules"]?.array ?? [] }

    private static func key(_ rule: JSONValue) -> String? { rule.object?["key"]?.string }

    /// Returns an object without its member `id`.
    private static func withoutID(_ value: JSONValue) -> JSONValue {
        guard var object = value.object else { return value }
        object["id"] = nil
        return .object(object)
    }
}

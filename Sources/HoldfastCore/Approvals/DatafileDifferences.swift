import Bucketing
import Definitions
import JSON

/// The differences between two datafiles, for people who decide whether one may replace the other.
///
/// Both sides have the elements that differ, by the name of their list and by their key, with the members that differ:
/// `{"experiments":{"checkout":{"status":"Running"}}}`.
struct DatafileDifferences {
    let before: JSONValue
    let after: JSONValue

    /// The maximum number of elements of a list that are shown, so that people can read them. The others are counted.
    private static let elementLimit = 100
    /// The maximum size of a value that is shown, in bytes. A larger value is replaced by its size.
    private static let valueLimit = 1_024

    /// The members that differ, with their values before and after the change.
    private struct Sides {
        var before: [JSONObject.Member] = []
        var after: [JSONObject.Member] = []

        mutating func append(_ key: String, _ before: JSONValue, _ after: JSONValue) {
            self.before.append(JSONObject.Member(key: key, value: before))
            self.after.append(JSONObject.Member(key: key, value: after))
        }
    }

    init(from project: Project, to edited: ProjectDefinitions) {
        let former = Self.elements(of: project.definitions.root)
        let edited = Self.elements(of: edited.root)
        var sides = Sides()
        for (list, elements) in edited.sorted(by: { $0.key < $1.key }) {
            guard let changed = Self.changes(from: former[list] ?? [:], to: elements) else { continue }
            sides.append(list, .object(JSONObject(changed.before)), .object(JSONObject(changed.after)))
        }
        before = .object(JSONObject(sides.before))
        after = .object(JSONObject(sides.after))
    }

    /// Returns the elements of a list that differ; `nil` if none does.
    private static func changes(
        from former: [Identifier: JSONObject], to edited: [Identifier: JSONObject]
    ) -> Sides? {
        let keys = Set(former.keys).union(edited.keys).filter { former[$0] != edited[$0] }.sorted()
        guard !keys.isEmpty else { return nil }
        var sides = Sides()
        for key in keys.prefix(elementLimit) {
            sides.append(
                key.string, differingMembers(of: former[key], from: edited[key]),
                differingMembers(of: edited[key], from: former[key]))
        }
        if keys.count > elementLimit {
            let rest = JSONValue.integer(Int64(keys.count - elementLimit))
            sides.append("…", rest, rest)
        }
        return sides
    }

    /// Returns the members of an element that differ from those of another one; null if there is no element.
    private static func differingMembers(of element: JSONObject?, from other: JSONObject?) -> JSONValue {
        guard let element else { return .null }
        let differing = element.filter { other?[$0.key] != $0.value }
        return .object(
            JSONObject(differing.map { JSONObject.Member(key: $0.key, value: shortened($0.value)) }))
    }

    /// Returns the value, or a text with its size if it is too large to be shown.
    private static func shortened(_ value: JSONValue) -> JSONValue {
        let size = value.encoded().count
        return size <= valueLimit ? value : .string("(\(size) bytes)")
    }

    /// The members of a datafile that are lists of elements.
    private static let lists = [
        "experiments", "groups", "featureFlags", "rollouts", "audiences", "typedAudiences", "events", "attributes",
        "holdouts", "localHoldouts",
    ]

    /// Returns the elements of a datafile by list and key. The experiments of groups are in the list `experiments`,
    /// too. All other members of the datafile are one element of the list `datafile`.
    private static func elements(of root: JSONObject) -> [String: [Identifier: JSONObject]] {
        var elements: [String: [Identifier: JSONObject]] = [:]
        var rest = root
        rest["revision"] = nil
        func add(_ object: JSONObject, to list: String) {
            let key = object.identifier("key") ?? object.identifier("id") ?? ""
            elements[list, default: [:]][key] = object
        }
        for list in lists {
            rest[list] = nil
            // Even an empty list is compared, because the other datafile may have elements in it.
            if elements[list] == nil { elements[list] = [:] }
            for var object in root.objects(list) {
                if list == "groups" {
                    for experiment in object.objects("experiments") { add(experiment, to: "experiments") }
                    object["experiments"] = nil
                }
                add(object, to: list)
            }
        }
        elements["datafile"] = ["datafile": rest]
        return elements
    }
}

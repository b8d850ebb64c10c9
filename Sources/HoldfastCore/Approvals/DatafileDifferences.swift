import Bucketing
import Definitions
import JSON

/// What differs between two datafiles, for people who decide whether one takes the place of the other: of each element that
/// differs the members that do, by the name of its list and its key.
struct DatafileDifferences {
    private(set) var before: JSONValue
    private(set) var after: JSONValue

    /// The elements that are shown at most, and the bytes of each member. Others are counted.
    private static let (mostElements, longestMember) = (100, 1_024)

    init(from project: Project, to edited: ProjectDefinitions) {
        let (former, edited) = (Self.elements(of: project.definitions.root), Self.elements(of: edited.root))
        var sides = (before: [JSONObject.Member](), after: [JSONObject.Member]())
        for (list, now) in edited.sorted(by: { $0.key < $1.key }) {
            let was = former[list] ?? [:]
            var changed = (before: [JSONObject.Member](), after: [JSONObject.Member]())
            let keys = Set(was.keys).union(now.keys).filter { was[$0] != now[$0] }.sorted()
            for key in keys.prefix(Self.mostElements) {
                let members = Self.members(was[key], now[key])
                changed.before.append(JSONObject.Member(key: key.string, value: members.before))
                changed.after.append(JSONObject.Member(key: key.string, value: members.after))
            }
            guard !keys.isEmpty else { continue }
            if keys.count > Self.mostElements {
                let rest = JSONObject.Member(key: "…", value: .integer(Int64(keys.count - Self.mostElements)))
                changed.before.append(rest)
                changed.after.append(rest)
            }
            sides.before.append(JSONObject.Member(key: list, value: .object(JSONObject(changed.before))))
            sides.after.append(JSONObject.Member(key: list, value: .object(JSONObject(changed.after))))
        }
        before = .object(JSONObject(sides.before))
        after = .object(JSONObject(sides.after))
    }

    private static func members(_ was: JSONObject?, _ now: JSONObject?) -> (before: JSONValue, after: JSONValue) {
        func side(_ object: JSONObject?, _ other: JSONObject?) -> JSONValue {
            guard let object else { return .null }
            let differing = object.filter { other?[$0.key] != $0.value }
            return .object(
                JSONObject(differing.map { JSONObject.Member(key: $0.key, value: shortened($0.value)) }))
        }
        return (side(was, now), side(now, was))
    }

    private static func shortened(_ value: JSONValue) -> JSONValue {
        let size = value.encoded().count
        return size <= longestMember ? value : .string("(\(size) bytes)")
    }

    private static let lists = [
        "experiments", "groups", "featureFlags", "rollouts", "audiences", "typedAudiences", "events", "attributes",
        "holdouts", "localHoldouts",
    ]

    /// Returns the elements of a datafile by list and key. Everything else is one element of the list `datafile`.
    private static func elements(of root: JSONObject) -> [String: [Identifier: JSONObject]] {
        var elements: [String: [Identifier: JSONObject]] = [:]
        var rest = root
        rest["revision"] = nil
        for list in lists {
            rest[list] = nil
            var known: [Identifier: JSONObject] = [:]
            func add(_ object: JSONObject, to known: inout [Identifier: JSONObject]) {
                known[object.identifier("key") ?? object.identifier("id") ?? ""] = object
            }
            for var object in root.objects(list) {
                if list == "groups" {
                    for experiment in object.objects("experiments") {
                        add(experiment, to: &elements["experiments", default: [:]])
                    }
                    object["experiments"] = nil
                }
                add(object, to: &known)
            }
            elements[list, default: [:]].merge(known) { $1 }
        }
        elements["datafile"] = ["datafile": rest]
        return elements
    }
}

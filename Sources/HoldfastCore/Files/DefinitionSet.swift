public import Bucketing
public import Definitions
public import JSON
import Storage

/// Definitions in the form of files: what `GET /v1/definitions` shows, and what `PUT` takes.
///
/// An element has the members that its own `PUT` takes, and its key. What only a server knows, such as revisions and the
/// state of a ramp, is left out, so that the definitions of two servers can be compared.
public struct DefinitionSet: Sendable, Equatable {
    /// In the order in which they are applied: what is named comes before what names it.
    public enum Kind: String, Sendable, CaseIterable {
        case attributes, segments, metrics, groups, experiments, flags, holdouts, webhooks

        public var noun: String { String(rawValue.dropLast()) }

        /// The member that identifies an element.
        public var keyMember: String {
            switch self {
            case .attributes, .segments, .groups: "name"
            case .metrics, .experiments, .flags, .holdouts, .webhooks: "key"
            }
        }
    }

    public struct Element: Sendable, Equatable {
        public var key: Identifier
        public var object: JSONObject
        /// Where it is in the input.
        public var place: JSONPointer = []

        public static func == (left: Self, right: Self) -> Bool { left.key == right.key && left.object == right.object }
    }

    private var lists: [Kind: [Element]] = [:]
    /// What is said of the project itself; `nil` if nothing is, and then it stays as it is.
    public var project: JSONObject?
    /// The member that has it.
    public static let projectMember = "project"
    /// The members of a document.
    public static let members = [projectMember] + Kind.allCases.map(\.rawValue)
    private static let longestList = 100_000
    /// Whether it has a list of webhooks, perhaps an empty one: who may not see them has none.
    public var saysWebhooks = false

    public init() {}

    /// Reads lists of elements by the names of their kinds, and what is said of the project.
    ///
    /// - Throws: 400 if the value is not an object; 422 with every list that is none, and every element without a key of its
    ///   own. What else the elements have is checked when they are applied.
    public init(_ value: JSONValue) throws(CoreError) {
        let object = try value.object("definitions", knowing: Self.members)
        var faults = FaultCollector()
        if let given = object[Self.projectMember], !given.isNull {
            project = faults.collect(
                try given.object("a project", knowing: [AssignmentLifetime.apiMember], at: [Self.projectMember]))
        }
        for kind in Kind.allCases {
            var known: Set<Identifier> = []
            var elements: [Element] = []
            for (value, place) in faults.list(object, kind.rawValue, 0...Self.longestList, at: []) ?? [] {
                guard let object = value.object else {
                    faults.add("a definition must be an object; got \(value.kind)", at: place)
                    continue
                }
                let keyPlace = place.appending(kind.keyMember)
                guard let text = faults.collect(try object.text(kind.keyMember, in: place)),
                    let key = faults.collect(try NameRule.checkKey(text, at: keyPlace))
                else { continue }
                if !known.insert(Identifier(key)).inserted {
                    faults.add("the \(kind.rawValue) must differ; got '\(key)' twice", at: keyPlace)
                }
                elements.append(Element(key: Identifier(key), object: object, place: place))
            }
            self[kind] = elements
            if kind == .webhooks { saysWebhooks = object[kind.rawValue].map { !$0.isNull } ?? false }
        }
        try faults.check()
    }

    public subscript(kind: Kind) -> [Element] {
        get { lists[kind] ?? [] }
        set { lists[kind] = newValue.isEmpty ? nil : newValue }
    }

    /// Returns the elements of a kind by their keys.
    func objects(_ kind: Kind) -> [Identifier: JSONObject] {
        Dictionary(self[kind].map { ($0.key, $0.object) }, uniquingKeysWith: { $1 })
    }

    public var json: JSONValue {
        var object = JSONObject()
        object[Self.projectMember] = project.map { .object($0) }
        for kind in Kind.allCases where kind != .webhooks || saysWebhooks {
            object[kind.rawValue] = .array(self[kind].map { .object($0.object) })
        }
        return .object(object)
    }
}

/// What differs between two states of an element, or of what is said of the project.
public struct DefinitionDifference: Sendable {
    /// `nil` for the project.
    public let kind: DefinitionSet.Kind?
    public let key: Identifier
    /// `nil` if it is new.
    public let before: JSONObject?
    /// `nil` if it is removed.
    public let after: JSONObject?

    var noun: String { kind?.noun ?? DefinitionSet.projectMember }

    /// The members that differ; `nil` stands for absent.
    private var members: [(name: String, before: JSONValue?, after: JSONValue?)] {
        func shown(_ object: JSONObject?) -> JSONObject {
            var object = object ?? JSONObject()
            if kind == .webhooks { object.hideURL() }
            return object
        }
        let (before, after) = (shown(before), shown(after))
        let names = after.map(\.key) + before.map(\.key).filter { after[$0] == nil }
        return names.filter { $0 != DefinitionSet.allocation && !DefinitionSet.areSame(before[$0], after[$0]) }.map {
            ($0, before[$0], after[$0])
        }
    }

    /// Whether members differ.
    var isDifference: Bool { !members.isEmpty }

    /// The members that differ, with both values; none of what is new or removed.
    public var changedMembers: JSONValue {
        guard before != nil, after != nil else { return [] }
        return .array(
            members.map { ["member": .string($0.name), "before": $0.before ?? .null, "after": $0.after ?? .null] })
    }

    public var json: JSONValue {
        [
            "kind": .string(noun), "key": JSONValue(key),
            "action": before == nil ? "create" : after == nil ? "remove" : "change", "members": changedMembers,
        ]
    }
}

extension JSONObject {
    /// Leaves of a webhook's URL, which may be a secret, only where it leads, and what tells it from another one.
    fileprivate mutating func hideURL() {
        guard let url = self["url"]?.string else { return }
        let origin = Webhook.Definition.origin(of: url)
        guard url != origin else { return }
        let hash = DerivedID.of(url).suffix(6)
        self["url"] = .string("\(origin)/…\(hash)")
    }
}

extension DefinitionSet {
    /// Returns a document of definitions without the URLs of webhooks, for readers who may not see them.
    public static func hidingURLs(_ document: JSONValue) -> JSONValue {
        guard var object = document.object, let webhooks = object[Kind.webhooks.rawValue]?.array else {
            return document
        }
        object[Kind.webhooks.rawValue] = .array(
            webhooks.map {
                guard var webhook = $0.object else { return $0 }
                webhook.hideURL()
                return .object(webhook)
            })
        return .object(object)
    }

    /// Where an element has which bucket values go where. It follows from the rest, and from the history.
    static let allocation = "traffic_allocation"

    /// Returns the elements that differ from those of another set. Groups follow from their experiments.
    func differences(from former: DefinitionSet) -> [DefinitionDifference] {
        Kind.allCases.filter { $0 != .groups }.flatMap { kind in
            var (before, after) = (former.objects(kind), objects(kind))
            if kind == .experiments {
                // One that was renamed has its id.
                let ids = Dictionary(
                    former[kind].filter { after[$0.key] == nil }.map { ($0.object.identifier("id"), $0) },
                    uniquingKeysWith: { $1 })
                for element in self[kind] where before[element.key] == nil {
                    guard let id = element.object.identifier("id"), let renamed = ids[id] else { continue }
                    before[element.key] = renamed.object
                    (before[renamed.key], after[renamed.key]) = (nil, nil)
                }
            }
            let keys = self[kind].map(\.key) + former[kind].map(\.key).filter { after[$0] == nil }
            return keys.filter { Self.differ(before[$0], after[$0]) }.map {
                DefinitionDifference(kind: kind, key: $0, before: before[$0], after: after[$0])
            }
        }
    }

    private static func differ(_ before: JSONObject?, _ after: JSONObject?) -> Bool {
        guard before != after else { return false }
        guard var before, var after else { return true }
        (before[allocation], after[allocation]) = (nil, nil)
        return !DefinitionChanges.areSame(.object(before), .object(after))
    }

    fileprivate static func areSame(_ left: JSONValue?, _ right: JSONValue?) -> Bool {
        guard let left, let right else { return (left == nil) == (right == nil) }
        return DefinitionChanges.areSame(left, right)
    }
}

public import Bucketing
public import Definitions
public import JSON

/// Definitions in the form of files: the document that `GET /v1/definitions` shows, and that `PUT` takes.
///
/// It has a list for each kind of element. An element has its key, and the members that its own `PUT` takes. What only
/// a server knows, such as revisions and the state of a ramp, is left out, so that the definitions of two servers can
/// be compared.
///
/// ``DefinitionSetEdit`` applies a set to a project; ``DefinitionDifference`` is what differs between two sets.
public struct DefinitionSet: Sendable, Equatable {
    /// The kinds of elements, in the order of a document: an element comes before those that name it.
    public enum Kind: String, Sendable, CaseIterable {
        case attributes, segments, metrics, groups, experiments, flags, holdouts, webhooks

        /// The singular, such as `experiment`.
        public var noun: String { String(rawValue.dropLast()) }

        /// The member that identifies an element.
        public var keyMember: String {
            switch self {
            case .attributes, .segments, .groups: "name"
            case .metrics, .experiments, .flags, .holdouts, .webhooks: "key"
            }
        }
    }

    /// An element of a list, such as an experiment.
    public struct Element: Sendable, Equatable {
        /// The value of the ``Kind/keyMember``.
        public var key: Identifier
        /// The element in the document, with its key.
        public var object: JSONObject
        /// The location of the element in the input, for errors. It does not count in comparisons of elements.
        public var place: JSONPointer = []

        public static func == (left: Self, right: Self) -> Bool { left.key == right.key && left.object == right.object }
    }

    private var lists: [Kind: [Element]] = [:]
    /// The settings of the project itself; `nil` to leave them as they are.
    public var project: JSONObject?
    /// Whether the document has a list of webhooks, even an empty one. A caller who may not see webhooks gets no list.
    public var saysWebhooks = false

    /// The member of a document with the settings of the project.
    public static let projectMember = "project"
    /// The members of a document.
    public static let members = [projectMember] + Kind.allCases.map(\.rawValue)
    /// The member of an experiment or a group that maps bucket values to variations or experiments. It is present only
    /// if it does not follow from the other members, because it depends on earlier allocations.
    static let allocation = "traffic_allocation"
    /// The maximum number of elements of a kind in a document.
    private static let longestList = 100_000

    public init() {}

    /// Reads a document. The other members of the elements are checked when the set is applied.
    ///
    /// - Throws: 400 if the value is not an object; 422 with every list that is not an array, and every element without
    ///   a key of its own.
    public init(_ value: JSONValue) throws(CoreError) {
        let object = try value.object("definitions", knowing: Self.members)
        var faults = FaultCollector()
        if let given = object[Self.projectMember], !given.isNull {
            project = faults.collect(
                try given.object("a project", knowing: [AssignmentLifetime.apiMember], at: [Self.projectMember]))
        }
        for kind in Kind.allCases { self[kind] = Self.elements(kind, of: object, &faults) }
        saysWebhooks = object[Kind.webhooks.rawValue].map { !$0.isNull } ?? false
        try faults.check()
    }

    /// Reads the list of the elements of a kind. An element without a valid key is left out, and is a fault.
    private static func elements(_ kind: Kind, of document: JSONObject, _ faults: inout FaultCollector) -> [Element] {
        var keys: Set<Identifier> = []
        var elements: [Element] = []
        for (value, place) in faults.list(document, kind.rawValue, 0...longestList, at: []) ?? [] {
            guard let object = value.object else {
                faults.add("a definition must be an object; got \(value.kind)", at: place)
                continue
            }
            let keyPlace = place.appending(kind.keyMember)
            guard let text = faults.collect(try object.text(kind.keyMember, in: place)),
                let key = faults.collect(try NameRule.checkKey(text, at: keyPlace))
            else { continue }
            if !keys.insert(Identifier(key)).inserted {
                faults.add("the \(kind.rawValue) must differ; got '\(key)' twice", at: keyPlace)
            }
            elements.append(Element(key: Identifier(key), object: object, place: place))
        }
        return elements
    }

    public subscript(kind: Kind) -> [Element] {
        get { lists[kind] ?? [] }
        set { lists[kind] = newValue.isEmpty ? nil : newValue }
    }

    /// Returns the elements of a kind by their keys.
    func objects(_ kind: Kind) -> [Identifier: JSONObject] {
        Dictionary(self[kind].map { ($0.key, $0.object) }, uniquingKeysWith: { $1 })
    }

    /// The document.
    public var json: JSONValue {
        var object = JSONObject()
        object[Self.projectMember] = project.map { .object($0) }
        for kind in Kind.allCases where kind != .webhooks || saysWebhooks {
            object[kind.rawValue] = .array(self[kind].map { .object($0.object) })
        }
        return .object(object)
    }
}

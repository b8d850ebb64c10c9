/// The members of a JSON object, in the order they were written.
///
/// Looking a key up walks the members while they are few, as they commonly are, and is one look into a dictionary
/// otherwise.
public struct JSONObject: Sendable {
    public struct Member: Sendable {
        public var key: String
        public var value: JSONValue

        public init(key: String, value: JSONValue) {
            self.key = key
            self.value = value
        }
    }

    /// The members; no key occurs twice.
    public private(set) var members: [Member]
    /// Where each key is; empty while the members are few enough to be walked.
    private var indices: [Identifier: Int] = [:]

    /// Members that are walked in less time than a text is hashed.
    private static let walkable = 16

    public init() {
        members = []
    }

    init(_ member: Member) {
        members = [member]
    }

    public var isEmpty: Bool { members.isEmpty }
    public var count: Int { members.count }

    /// The value of a key. Setting a known key keeps its place, a new one is appended, `nil` removes it.
    public subscript(key: String) -> JSONValue? {
        get {
            index(of: key).map { members[$0].value }
        }
        set {
            let index = index(of: key)
            if let newValue { return set(key, newValue, at: index) }
            guard let index else { return }
            members.remove(at: index)
            reindex()
        }
    }

    func index(of key: String) -> Int? {
        if members.count > Self.walkable { return indices[Identifier(key)] }
        return members.firstIndex { $0.key.hasSameBytes(as: key) }
    }

    /// - Parameter index: what ``index(of:)`` says of the key.
    mutating func set(_ key: String, _ value: JSONValue, at index: Int?) {
        if let index {
            members[index].value = value
            return
        }
        // Most objects have a few members; growing to them one by one would take as long as to read them.
        if members.isEmpty { members.reserveCapacity(4) }
        members.append(Member(key: key, value: value))
        if members.count == Self.walkable + 1 {
            reindex()
        } else if members.count > Self.walkable {
            indices[Identifier(key)] = members.count - 1
        }
    }

    private mutating func reindex() {
        indices.removeAll()
        guard members.count > Self.walkable else { return }
        for (index, member) in members.enumerated() { indices[Identifier(member.key)] = index }
    }
}

extension JSONObject: Equatable {
    public static func == (left: Self, right: Self) -> Bool {
        left.members == right.members
    }
}

extension JSONObject.Member: Equatable {
    public static func == (left: Self, right: Self) -> Bool {
        left.key.hasSameBytes(as: right.key) && left.value == right.value
    }
}

extension JSONObject: Sequence {
    public func makeIterator() -> IndexingIterator<[Member]> {
        members.makeIterator()
    }

    public var underestimatedCount: Int { members.count }
}

/// The members of a JSON object, in the order they were written.
///
/// A lookup searches the members linearly while they are few, as they commonly are, and uses a dictionary otherwise.
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
    /// The index of each key; `nil` while there are few members.
    private var indices: [Key: Int]?

    /// A key as the dictionary compares it: by its bytes. `String` compares by canonical equivalence.
    private struct Key: Hashable {
        let text: String

        static func == (left: Self, right: Self) -> Bool {
            left.text.hasSameBytes(as: right.text)
        }

        func hash(into hasher: inout Hasher) {
            var copy = text
            copy.withUTF8 { hasher.combine(bytes: UnsafeRawBufferPointer($0)) }
        }
    }

    /// Up to this many members, a linear search is faster than hashing the key.
    private static let linearSearchLimit = 16

    public init() {
        members = []
    }

    package init(_ member: Member) {
        members = [member]
    }

    /// - Parameter members: if several members have the same key, the value of the last one is set at the place of the
    ///   first.
    public init(_ members: [Member]) {
        self.members = []
        self.members.reserveCapacity(members.count)
        for member in members { self[member.key] = member.value }
    }

    public var isEmpty: Bool { members.isEmpty }
    public var count: Int { members.count }

    /// The value of a key. Setting a value keeps the place of a known key, and appends a new key. Setting `nil` removes
    /// the key.
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

    /// Returns the index of a key in ``members``; `nil` if the object does not have the key.
    func index(of key: String) -> Int? {
        if let indices { return indices[Key(text: key)] }
        // A loop, because a closure would copy each member.
        for index in members.indices where members[index].key.hasSameBytes(as: key) { return index }
        return nil
    }

    /// Sets the value of a key whose index the caller already knows.
    ///
    /// - Parameter index: the result of ``index(of:)`` for the key.
    mutating func set(_ key: String, _ value: JSONValue, at index: Int?) {
        if let index {
            members[index].value = value
            return
        }
        // Most objects have a few members. Growing the array for each of them would take as long as parsing them.
        if members.isEmpty { members.reserveCapacity(4) }
        members.append(Member(key: key, value: value))
        if members.count == Self.linearSearchLimit + 1 {
            reindex()
        } else if members.count > Self.linearSearchLimit {
            indices?[Key(text: key)] = members.count - 1
        }
    }

    /// Rebuilds ``indices`` after members were moved or their number has crossed the limit.
    private mutating func reindex() {
        indices = nil
        guard members.count > Self.linearSearchLimit else { return }
        indices = Dictionary(members.enumerated().map { (Key(text: $1.key), $0) }, uniquingKeysWith: { $1 })
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

/// The members of a JSON object, in the order they were written.
///
/// Looking a key up walks the members, which is the quickest way for the few an object commonly has.
/// Who needs many keys of a big object should walk it once.
public struct JSONObject: Sendable, Equatable {
    public struct Member: Sendable {
        public var key: String
        public var value: JSONValue

        public init(key: String, value: JSONValue) {
            self.key = key
            self.value = value
        }
    }

    /// The members; no key occurs twice.
    public internal(set) var members: [Member]

    public init() {
        members = []
    }

    init(uniqueMembers: [Member]) {
        members = uniqueMembers
    }

    public var isEmpty: Bool { members.isEmpty }
    public var count: Int { members.count }

    /// The value of a key. Setting a known key keeps its place, a new one is appended, `nil` removes it.
    public subscript(key: String) -> JSONValue? {
        get {
            for member in members where member.key.hasSameBytes(as: key) {
                return member.value
            }
            return nil
        }
        set {
            let index = members.firstIndex { $0.key.hasSameBytes(as: key) }
            switch (index, newValue) {
            case (let index?, let value?): members[index].value = value
            case (let index?, nil): members.remove(at: index)
            case (nil, let value?): members.append(Member(key: key, value: value))
            case (nil, nil): break
            }
        }
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

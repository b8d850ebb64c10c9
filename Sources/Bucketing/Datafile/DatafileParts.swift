import JSON

/// A datafile in parts, as stores keep what edits generate: the elements of its lists, of which an edit changes few, and the
/// rest of the document.
public struct DatafileParts: Sendable, Equatable {
    /// Names an element among all of a datafile.
    public struct Name: Hashable, Sendable, Comparable {
        /// A member of the root, such as `experiments`; `groups/` and the id of a group whose experiments they are; or
        /// `holdfast/` and a member whose members they are.
        public var list: Identifier
        /// The id, or the key of a member.
        public var key: Identifier

        public init(list: Identifier, key: Identifier) {
            self.list = list
            self.key = key
        }

        public static func < (left: Name, right: Name) -> Bool {
            left.list == right.list ? left.key < right.key : left.list < right.list
        }
    }

    public struct Element: Sendable, Equatable {
        public let name: Name
        /// Increases with the place in the list.
        public let position: Int64
        /// JSON.
        public let body: [UInt8]
        fileprivate let hash: UInt64

        public init(_ name: Name, position: Int64, body: [UInt8]) {
            self.name = name
            self.position = position
            self.body = body
            hash = body.contentHash
        }
    }

    /// What an edit makes of a datafile.
    public struct Change: Sendable, Equatable {
        /// The new base.
        public var base: [UInt8]
        /// The elements that are gone, or replaced by one of ``put``.
        public var removed: [Name]
        public var put: [Element]

        public init(base: [UInt8], removed: [Name], put: [Element]) {
            self.base = base
            self.removed = removed
            self.put = put
        }

        /// Whether another change is the same, in whatever order.
        package func hasSameParts(as other: Change) -> Bool {
            base == other.base && Set(removed) == Set(other.removed)
                && put.sorted { $0.name < $1.name } == other.put.sorted { $0.name < $1.name }
        }
    }

    /// The members of the root whose elements are parts, and the members by which these are named. The elements of groups are
    /// their experiments, see ``list(ofGroup:)``, and those of `holdfast` are members themselves, see ``list(ofOwn:)``.
    static let lists: KeyValuePairs = [
        "experiments": "key", "featureFlags": "key", "rollouts": "id", "typedAudiences": "id",
    ]
    /// The members of `holdfast` whose members are parts.
    package static let ownLists = ["experiments", "metrics"]

    public static func list(ofGroup id: Identifier) -> Identifier { Identifier("groups/\(id)") }

    /// - Parameter member: of `holdfast`.
    public static func list(ofOwn member: String) -> Identifier { Identifier("\(Annotations.member)/\(member)") }

    /// The document without the elements: their lists are empty. JSON.
    public let base: [UInt8]
    /// The elements of each list that is not empty, in its order.
    let elementsByList: [Identifier: [Element]]
    /// Equal datafiles have equal hashes, in all processes.
    public let hash: UInt64

    init(base: [UInt8], _ elementsByList: [Identifier: [Element]]) {
        self.base = base
        self.elementsByList = elementsByList
        var hash = base.contentHash
        for list in elementsByList.values {
            for element in list { hash &+= element.hash }
        }
        self.hash = hash
    }

    /// - Parameter elements: in any order.
    public init(base: [UInt8], elements: [Element]) {
        self.init(base: base, Dictionary(grouping: elements, by: \.name.list).mapValues(\.inOrder))
    }

    public static func == (left: Self, right: Self) -> Bool {
        left.hash == right.hash && left.base == right.base && left.elementsByList == right.elementsByList
    }

    public var count: Int { elementsByList.values.reduce(0) { $0 + $1.count } }

    /// All elements, list by list.
    public var elements: [Element] {
        elementsByList.sorted { $0.key < $1.key }.flatMap(\.value)
    }

    public func applying(_ change: Change) -> DatafileParts {
        var lists = elementsByList
        let removed = Dictionary(grouping: change.removed, by: \.list)
        let put = Dictionary(grouping: change.put, by: \.name.list)
        for list in Set(removed.keys).union(put.keys) {
            var elements = lists.removeValue(forKey: list) ?? []
            elements.replace(removed[list] ?? [], with: put[list] ?? [])
            if !elements.isEmpty { lists[list] = elements }
        }
        return DatafileParts(base: change.base, lists)
    }

    // MARK: Joining

    /// The document.
    public var joined: [UInt8] {
        guard let root = try? JSONParser().parse(base).object else { return base }
        let lists = elementsByList
        let size = lists.values.joined().reduce(base.count) { $0 + $1.body.count + 64 }
        var writer = JSONWriter(capacity: size)
        writer.object(root) { writer, member in
            switch (member.key, member.value) {
            case ("groups", .array(let groups)):
                writer.beginArray()
                for group in groups {
                    guard let object = group.object else {
                        writer.value(group)
                        continue
                    }
                    let list = lists[Self.list(ofGroup: Identifier(object["id"]?.string ?? ""))] ?? []
                    writer.object(object) { $1.key == "experiments" ? $0.list(list) : $0.value($1.value) }
                }
                writer.endArray()
            case (Annotations.member, .object(let own)):
                writer.object(own) { writer, member in
                    guard let members = lists[Self.list(ofOwn: member.key)] else {
                        return writer.value(member.value)
                    }
                    writer.beginObject()
                    for element in members {
                        writer.key(text: element.name.key.string)
                        writer.raw(element.body)
                    }
                    writer.endObject()
                }
            default:
                if Self.lists.contains(where: { $0.key == member.key }), let list = lists[Identifier(member.key)] {
                    writer.list(list)
                } else {
                    writer.value(member.value)
                }
            }
        }
        return writer.finish()
    }
}

extension [DatafileParts.Element] {
    /// Replaces elements of a list that is in order.
    fileprivate mutating func replace(_ removed: [DatafileParts.Name], with put: [DatafileParts.Element]) {
        if replaceInPlace(removed, with: put) { return }
        let gone = Set(removed.map(\.key))
        var new = Dictionary(put.map { ($0.name.key, $0) }, uniquingKeysWith: { $1 })
        var edited: Self = []
        edited.reserveCapacity(count + new.count)
        for element in self {
            if let other = new.removeValue(forKey: element.name.key) {
                edited.append(other)
            } else if !gone.contains(element.name.key) {
                edited.append(element)
            }
        }
        self = (edited + new.values).inOrder
    }

    /// - Returns: false if an element was added, removed or moved. The list is then as it was.
    private mutating func replaceInPlace(
        _ removed: [DatafileParts.Name], with put: [DatafileParts.Element]
    ) -> Bool {
        let places = put.compactMap { index(replacedBy: $0) }
        guard places.count == put.count, Set(removed).isSubset(of: put.map(\.name)) else { return false }
        for (place, element) in zip(places, put) { self[place] = element }
        return true
    }

    /// Returns the index of the element that has the name and the position of another one.
    private func index(replacedBy element: DatafileParts.Element) -> Int? {
        var range = startIndex..<endIndex
        while !range.isEmpty {
            let middle = range.lowerBound + range.count / 2
            if self[middle].position < element.position {
                range = (middle + 1)..<range.upperBound
            } else {
                range = range.lowerBound..<middle
            }
        }
        let index = range.lowerBound
        guard index < endIndex, self[index].position == element.position, self[index].name == element.name else {
            return nil
        }
        return index
    }

    fileprivate var inOrder: Self {
        let isInOrder = zip(self, dropFirst()).allSatisfy { $0.position <= $1.position }
        return isInOrder ? self : sorted { $0.position < $1.position }
    }
}

extension JSONWriter {
    fileprivate mutating func object(
        _ object: JSONObject, _ write: (inout JSONWriter, JSONObject.Member) -> Void
    ) {
        beginObject()
        for member in object {
            key(text: member.key)
            write(&self, member)
        }
        endObject()
    }

    fileprivate mutating func list(_ elements: [DatafileParts.Element]) {
        beginArray()
        for element in elements { raw(element.body) }
        endArray()
    }
}

extension [UInt8] {
    /// A hash of the bytes, the same in all processes.
    package var contentHash: UInt64 {
        withUnsafeBytes { bytes in
            var hash: UInt64 = 0xCBF2_9CE4_8422_2325 ^ UInt64(bytes.count)
            func add(_ word: UInt64) {
                hash = (hash ^ word) &* 0x100_0000_01B3
                hash ^= hash >> 32
            }
            // Eight bytes at a time, because datafiles are large.
            let end = bytes.count & ~7
            for offset in stride(from: 0, to: end, by: 8) {
                add(UInt64(littleEndian: bytes.loadUnaligned(fromByteOffset: offset, as: UInt64.self)))
            }
            for byte in bytes[end...] { add(UInt64(byte)) }
            return hash
        }
    }
}

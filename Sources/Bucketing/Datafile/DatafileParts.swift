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

    /// An object, because the lists of elements are copied at each edit.
    public final class Element: Sendable, Equatable {
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

        public static func == (left: Element, right: Element) -> Bool {
            left === right
                || left.position == right.position && left.hash == right.hash && left.name == right.name
                    && left.body == right.body
        }
    }

    /// The elements of a list in their order.
    struct List: Sendable, Equatable {
        private(set) var elements: [Element]
        /// The sum of the elements' hashes.
        fileprivate private(set) var hash: UInt64

        /// - Parameter elements: in any order.
        init(_ elements: [Element]) {
            let isInOrder = zip(elements, elements.dropFirst()).allSatisfy { $0.position <= $1.position }
            self.elements = isInOrder ? elements : elements.sorted { $0.position < $1.position }
            hash = elements.reduce(0) { $0 &+ $1.hash }
        }

        /// Replaces an element by one with the same position.
        mutating func replace(at index: Int, with element: Element) {
            hash = hash &- elements[index].hash &+ element.hash
            elements[index] = element
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
    /// The lists that are not empty, by their names.
    let lists: [Identifier: List]
    /// Equal datafiles have equal hashes, in all processes.
    public let hash: UInt64

    init(base: [UInt8], _ lists: [Identifier: List]) {
        self.base = base
        self.lists = lists
        hash = lists.values.reduce(base.contentHash) { $0 &+ $1.hash }
    }

    /// - Parameter elements: in any order.
    public init(base: [UInt8], elements: [Element]) {
        self.init(base: base, Dictionary(grouping: elements, by: \.name.list).mapValues { List($0) })
    }

    public static func == (left: Self, right: Self) -> Bool {
        left.hash == right.hash && left.base == right.base && left.lists == right.lists
    }

    public var count: Int { lists.values.reduce(0) { $0 + $1.elements.count } }

    /// All elements, list by list.
    public var elements: [Element] {
        lists.sorted { $0.key < $1.key }.flatMap(\.value.elements)
    }

    public func applying(_ change: Change) -> DatafileParts {
        var lists = lists
        let removed = Dictionary(grouping: change.removed, by: \.list)
        let put = Dictionary(grouping: change.put, by: \.name.list)
        for list in Set(removed.keys).union(put.keys) {
            var edited = lists.removeValue(forKey: list) ?? List([])
            edited.replace(removed[list] ?? [], with: put[list] ?? [])
            if !edited.elements.isEmpty { lists[list] = edited }
        }
        return DatafileParts(base: change.base, lists)
    }

    // MARK: Joining

    /// The document.
    public var joined: [UInt8] {
        guard let root = try? JSONParser().parse(base).object else { return base }
        let lists = lists
        let size = lists.values.reduce(base.count) { size, list in
            list.elements.reduce(size) { $0 + $1.body.count + 64 }
        }
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
                    let list = lists[Self.list(ofGroup: Identifier(object["id"]?.string ?? ""))]?.elements ?? []
                    writer.object(object) { $1.key == "experiments" ? $0.list(list) : $0.value($1.value) }
                }
                writer.endArray()
            case (Annotations.member, .object(let own)):
                writer.object(own) { writer, member in
                    guard let members = lists[Self.list(ofOwn: member.key)] else {
                        return writer.value(member.value)
                    }
                    writer.beginObject()
                    for element in members.elements {
                        writer.key(text: element.name.key.string)
                        writer.raw(element.body)
                    }
                    writer.endObject()
                }
            default:
                if Self.lists.contains(where: { $0.key == member.key }), let list = lists[Identifier(member.key)] {
                    writer.list(list.elements)
                } else {
                    writer.value(member.value)
                }
            }
        }
        return writer.finish()
    }
}

extension DatafileParts.List {
    /// Replaces elements.
    fileprivate mutating func replace(_ removed: [DatafileParts.Name], with put: [DatafileParts.Element]) {
        if replaceInPlace(removed, with: put) { return }
        let gone = Set(removed.map(\.key))
        var new = Dictionary(put.map { ($0.name.key, $0) }, uniquingKeysWith: { $1 })
        var edited: [DatafileParts.Element] = []
        edited.reserveCapacity(elements.count + new.count)
        for element in elements {
            if let other = new.removeValue(forKey: element.name.key) {
                edited.append(other)
            } else if !gone.contains(element.name.key) {
                edited.append(element)
            }
        }
        self = DatafileParts.List(edited + new.values)
    }

    /// - Returns: false if an element was added, removed or moved. The list is then as it was.
    private mutating func replaceInPlace(
        _ removed: [DatafileParts.Name], with put: [DatafileParts.Element]
    ) -> Bool {
        let places = put.compactMap { index(replacedBy: $0) }
        guard places.count == put.count, Set(removed).isSubset(of: put.map(\.name)) else { return false }
        for (place, element) in zip(places, put) { replace(at: place, with: element) }
        return true
    }

    /// Returns the index of the element that has the name and the position of another one.
    private func index(replacedBy element: DatafileParts.Element) -> Int? {
        var range = elements.indices
        while !range.isEmpty {
            let middle = range.lowerBound + range.count / 2
            if elements[middle].position < element.position {
                range = (middle + 1)..<range.upperBound
            } else {
                range = range.lowerBound..<middle
            }
        }
        let index = range.lowerBound
        guard elements.indices.contains(index) else { return nil }
        let former = elements[index]
        return former.position == element.position && former.name == element.name ? index : nil
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

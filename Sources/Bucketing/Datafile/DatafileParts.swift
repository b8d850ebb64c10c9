import JSON

/// A datafile in parts: the elements of its lists, and the rest of the document.
///
/// Stores keep the datafiles that edits generate in this form, an element in each row. An edit changes few elements, so
/// it writes few rows, a ``Change``. ``DatafileParts/edited(to:since:_:)`` takes a document apart,
/// ``DatafileParts/document(similarTo:)`` and ``joined`` put it together.
///
///     {"revision":"7","experiments":[{"key":"a",…},{"key":"b",…}],…}
///
///     base:      {"revision":"7","experiments":[],…}
///     elements:  experiments/a  1024  {"key":"a",…}
///                experiments/b  2048  {"key":"b",…}
public struct DatafileParts: Sendable, Equatable {
    /// The name of an element. No two elements of a datafile have the same name.
    public struct Name: Hashable, Sendable, Comparable {
        /// The list that has the element:
        /// - a member of the root, such as `experiments`;
        /// - `groups/ID` for the experiments of a group, see ``DatafileParts/list(ofGroup:)``;
        /// - `holdfast/MEMBER` for the members of an annotation of the root, see ``DatafileParts/list(ofOwn:)``.
        public var list: Identifier
        /// The key or the id of the element; for an annotation, the name of the member.
        public var key: Identifier

        public init(list: Identifier, key: Identifier) {
            self.list = list
            self.key = key
        }

        public static func < (left: Name, right: Name) -> Bool {
            left.list == right.list ? left.key < right.key : left.list < right.list
        }
    }

    /// An element of a datafile. It is a class, because each edit copies the lists of elements.
    public final class Element: Sendable, Equatable {
        public let name: Name
        /// The position in the list. Positions ascend, but have gaps, so that an element can be inserted without
        /// changing the positions of others.
        public let position: Int64
        /// The element as JSON text.
        public let body: [UInt8]
        /// The version of the datafile that brought the element as it is; `nil` if it is not known. Equal elements may have
        /// different versions, because an element can be changed and changed back.
        public let version: Int64?
        /// The hash of the body; makes comparisons of different elements fast.
        fileprivate let hash: UInt64

        public init(_ name: Name, position: Int64, body: [UInt8], version: Int64? = nil) {
            self.name = name
            self.position = position
            self.body = body
            self.version = version
            hash = body.contentHash
        }

        public static func == (left: Element, right: Element) -> Bool {
            left === right
                || left.position == right.position && left.hash == right.hash && left.name == right.name
                    && left.body == right.body
        }
    }

    /// The elements of a list, in the order of their positions.
    struct List: Sendable, Equatable {
        private(set) var elements: [Element]
        /// The sum of the elements' hashes, so that replacing an element does not hash the others again.
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

    /// The difference that an edit makes to a datafile in parts.
    public struct Change: Sendable, Equatable {
        /// The ``DatafileParts/base`` after the edit.
        public var base: [UInt8]
        /// The names of the elements that the edit removes. Also has those of replaced elements, whose new versions are
        /// in ``put``.
        public var removed: [Name]
        /// The elements that the edit adds, and the new versions of those that it replaces.
        public var put: [Element]

        public init(base: [UInt8], removed: [Name], put: [Element]) {
            self.base = base
            self.removed = removed
            self.put = put
        }

        /// Whether another change has the same elements, in any order.
        package func hasSameParts(as other: Change) -> Bool {
            base == other.base && Set(removed) == Set(other.removed)
                && put.sorted { $0.name < $1.name } == other.put.sorted { $0.name < $1.name }
        }
    }

    /// The members of the root whose elements are parts, each with the member of an element that has its key.
    static let lists: KeyValuePairs = [
        "experiments": "key", "featureFlags": "key", "rollouts": "id", "typedAudiences": "id",
    ]
    /// The annotations of the root (``Annotations``) whose members are parts.
    package static let ownLists = ["experiments", "metrics"]

    /// Returns the name of the list that has the experiments of a group.
    public static func list(ofGroup id: Identifier) -> Identifier { Identifier("groups/\(id)") }

    /// Returns the name of the list that has the members of an annotation of the root.
    ///
    /// - Parameter member: one of ``ownLists``.
    public static func list(ofOwn member: String) -> Identifier { Identifier("\(Annotations.member)/\(member)") }

    /// The document with empty lists in the place of the elements, as JSON text.
    public let base: [UInt8]
    /// The lists that are not empty, by their names.
    let lists: [Identifier: List]
    /// A hash of the base and of all elements, the same in all processes.
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

    /// The number of elements.
    public var count: Int { lists.values.reduce(0) { $0 + $1.elements.count } }

    /// All elements, list by list.
    public var elements: [Element] {
        lists.sorted { $0.key < $1.key }.flatMap(\.value.elements)
    }

    /// Returns an element; `nil` if there is none with the name.
    public func element(_ name: Name) -> Element? {
        lists[name.list]?.elements.first { $0.name.key == name.key }
    }

    /// Returns the datafile after an edit.
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

    /// The whole document as JSON text. The texts of the elements are copied, not parsed.
    public var joined: [UInt8] {
        guard let root = try? JSONParser().parse(base).object else { return base }
        var writer = JSONWriter(capacity: estimatedSize)
        writer.object(root) { writer, member in
            switch (member.key, member.value) {
            case ("groups", .array(let groups)): write(groups, to: &writer)
            case (Annotations.member, .object(let annotations)): write(annotations, to: &writer)
            default:
                let isList = Self.lists.contains { $0.key == member.key }
                if isList, let list = lists[Identifier(member.key)] {
                    writer.list(list.elements)
                } else {
                    writer.value(member.value)
                }
            }
        }
        return writer.finish()
    }

    /// The approximate size of the whole document, in bytes. Each element may need some space for its name and
    /// separators.
    private var estimatedSize: Int {
        let spaceForName = 64
        return lists.values.reduce(base.count) { size, list in
            list.elements.reduce(size) { $0 + $1.body.count + spaceForName }
        }
    }

    /// Writes the groups, each with its experiments.
    private func write(_ groups: [JSONValue], to writer: inout JSONWriter) {
        writer.beginArray()
        for group in groups {
            guard let object = group.object else {
                writer.value(group)
                continue
            }
            let name = Self.list(ofGroup: Identifier(object["id"]?.string ?? ""))
            let experiments = lists[name]?.elements ?? []
            writer.object(object) { writer, member in
                if member.key == "experiments" {
                    writer.list(experiments)
                } else {
                    writer.value(member.value)
                }
            }
        }
        writer.endArray()
    }

    /// Writes the annotations of the root. The elements of ``ownLists`` are members.
    private func write(_ annotations: JSONObject, to writer: inout JSONWriter) {
        writer.object(annotations) { writer, member in
            guard let list = lists[Self.list(ofOwn: member.key)] else { return writer.value(member.value) }
            writer.beginObject()
            for element in list.elements {
                writer.key(text: element.name.key.string)
                writer.raw(element.body)
            }
            writer.endObject()
        }
    }
}

extension DatafileParts.List {
    /// Applies the part of a ``DatafileParts/Change`` that is about this list.
    fileprivate mutating func replace(_ removed: [DatafileParts.Name], with put: [DatafileParts.Element]) {
        // Mostly, elements only change, and the order stays the same.
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

    /// Replaces elements by ones with the same names and positions.
    ///
    /// - Returns: false if an element is added, removed or moved. The list is then unchanged.
    private mutating func replaceInPlace(
        _ removed: [DatafileParts.Name], with put: [DatafileParts.Element]
    ) -> Bool {
        let places = put.compactMap { index(replacedBy: $0) }
        guard places.count == put.count, Set(removed).isSubset(of: put.map(\.name)) else { return false }
        for (place, element) in zip(places, put) { replace(at: place, with: element) }
        return true
    }

    /// Returns the index of the element that has the name and the position of another one; `nil` if there is none.
    /// Finds it by a binary search for the position.
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
    /// Writes an object, whose values are written by a function.
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

    /// Writes an array of elements.
    fileprivate mutating func list(_ elements: [DatafileParts.Element]) {
        beginArray()
        for element in elements { raw(element.body) }
        endArray()
    }
}

extension [UInt8] {
    /// A hash of the bytes, the same in all processes: FNV-1a on words of eight bytes, with a mixing step after each
    /// word.
    package var contentHash: UInt64 {
        withUnsafeBytes { bytes in
            // The offset basis and the prime of FNV-1a for 64 bits.
            var hash: UInt64 = 0xCBF2_9CE4_8422_2325 ^ UInt64(bytes.count)
            func add(_ word: UInt64) {
                hash = (hash ^ word) &* 0x100_0000_01B3
                hash ^= hash >> 32
            }
            // Words are faster than bytes, because datafiles are large. The remaining bytes are hashed one by one.
            let end = bytes.count & ~7
            for offset in stride(from: 0, to: end, by: 8) {
                add(UInt64(littleEndian: bytes.loadUnaligned(fromByteOffset: offset, as: UInt64.self)))
            }
            for byte in bytes[end...] { add(UInt64(byte)) }
            return hash
        }
    }
}

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
        public var name: Name
        /// Increases with the place in the list.
        public var position: Int64
        /// JSON.
        public var body: [UInt8]

        public init(_ name: Name, position: Int64, body: [UInt8]) {
            self.name = name
            self.position = position
            self.body = body
        }

        fileprivate static func precedes(_ left: Element, _ right: Element) -> Bool {
            left.name.list == right.name.list ? left.position < right.position : left.name.list < right.name.list
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
    }

    /// The members of the root whose elements are parts. Those of groups are their experiments, see ``list(ofGroup:)``, and
    /// those of `holdfast` are members themselves, see ``list(ofOwn:)``.
    public static let lists = ["experiments", "featureFlags", "rollouts", "typedAudiences"]
    /// The members of `holdfast` whose members are parts.
    public static let ownLists = ["experiments", "metrics"]

    public static func list(ofGroup id: Identifier) -> Identifier { Identifier("groups/\(id)") }

    /// - Parameter member: of `holdfast`.
    public static func list(ofOwn member: String) -> Identifier { Identifier("\(Annotations.member)/\(member)") }

    /// The document without the elements: their lists are empty. JSON.
    public let base: [UInt8]
    /// List by list, each in its order.
    public let elements: [Element]

    /// - Parameter elements: in any order.
    public init(base: [UInt8], elements: [Element]) {
        self.base = base
        let isSorted = zip(elements, elements.dropFirst()).allSatisfy(Element.precedes)
        self.elements = isSorted ? elements : elements.sorted(by: Element.precedes)
    }

    public func applying(_ change: Change) -> DatafileParts {
        let removed = Set(change.removed)
        guard !removed.isEmpty || !change.put.isEmpty else {
            return DatafileParts(base: change.base, elements: elements)
        }
        var put = Dictionary(change.put.map { ($0.name, $0) }, uniquingKeysWith: { $1 })
        var edited: [Element] = []
        edited.reserveCapacity(elements.count + put.count)
        for element in elements {
            if let other = put.removeValue(forKey: element.name) {
                edited.append(other)
            } else if !removed.contains(element.name) {
                edited.append(element)
            }
        }
        return DatafileParts(base: change.base, elements: edited + put.values)
    }

    // MARK: Joining

    /// The document.
    public var joined: [UInt8] {
        guard let root = try? JSONParser().parse(base).object else { return base }
        let lists = elements.lists
        var writer = JSONWriter(capacity: elements.reduce(base.count) { $0 + $1.body.count + 64 })
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
                if Self.lists.contains(member.key), let list = lists[Identifier(member.key)] {
                    writer.list(list)
                } else {
                    writer.value(member.value)
                }
            }
        }
        return writer.finish()
    }

    // MARK: Comparing

    /// A list of a datafile, in its order.
    public struct List: Sendable {
        public var name: Identifier
        public var elements: [(key: Identifier, body: [UInt8])]

        public init(_ name: Identifier, _ elements: [(key: Identifier, body: [UInt8])]) {
            self.name = name
            self.elements = elements
        }
    }

    /// Compares the parts of a datafile with those before an edit. Elements that keep their place among the others keep
    /// their positions.
    ///
    /// - Parameters:
    ///   - lists: all that are not empty.
    ///   - former: `nil` if the former datafile was not stored in parts.
    /// - Returns: `nil` if the datafile cannot be stored in parts: two elements of a list have the same key, or a key is too long
    ///   for an index of a database, or has a NUL, which PostgreSQL's texts cannot have.
    public static func edited(
        base: [UInt8], _ lists: [List], replacing former: DatafileParts?
    ) -> (parts: DatafileParts, change: Change)? {
        let known = former?.elements.lists ?? [:]
        var change = Change(base: base, removed: [], put: [])
        var elements: [Element] = []
        elements.reserveCapacity(lists.reduce(0) { $0 + $1.elements.count })
        let names = Set(lists.map(\.name))
        for (name, gone) in known where !names.contains(name) { change.removed += gone.map(\.name) }
        for list in lists.sorted(by: { $0.name < $1.name }) {
            guard change.add(list, replacing: known[list.name] ?? [], to: &elements) else { return nil }
        }
        change.removed.sort()
        return (DatafileParts(base: base, elements: elements), change)
    }
}

extension DatafileParts.Change {
    private static let step: Int64 = 1_024

    private static func isStorable(_ name: Identifier) -> Bool {
        let bytes = name.string.utf8
        return bytes.count <= 1_024 && !bytes.contains(0)
    }

    /// - Returns: whether all keys of the list differ.
    fileprivate mutating func add(
        _ list: DatafileParts.List, replacing former: ArraySlice<DatafileParts.Element>,
        to elements: inout [DatafileParts.Element]
    ) -> Bool {
        guard Self.isStorable(list.name) else { return false }
        if list.elements.count == former.count, zip(list.elements, former).allSatisfy({ $0.key == $1.name.key }) {
            for ((_, body), known) in zip(list.elements, former) {
                add(.init(known.name, position: known.position, body: body), replacing: known, to: &elements)
            }
            return true
        }
        var known = Dictionary(former.map { ($0.name.key, $0) }, uniquingKeysWith: { $1 })
        let lastKnown = former.last?.position ?? 0
        var (last, keys): (Int64, Set<Identifier>) = (0, [])
        for (key, body) in list.elements {
            guard keys.insert(key).inserted, Self.isStorable(key) else { return false }
            let same = known.removeValue(forKey: key)
            if let same, same.position > last {
                last = same.position
            } else {
                last += last >= lastKnown ? Self.step : 1
            }
            add(.init(.init(list: list.name, key: key), position: last, body: body), replacing: same, to: &elements)
        }
        removed += known.values.map(\.name)
        return true
    }

    private mutating func add(
        _ element: DatafileParts.Element, replacing former: DatafileParts.Element?,
        to elements: inout [DatafileParts.Element]
    ) {
        elements.append(element)
        guard element != former else { return }
        if former != nil { removed.append(element.name) }
        put.append(element)
    }
}

extension [DatafileParts.Element] {
    /// The elements of each list.
    fileprivate var lists: [Identifier: ArraySlice<Element>] {
        var lists: [Identifier: ArraySlice<Element>] = [:]
        var start = startIndex
        while start < endIndex {
            let name = self[start].name.list
            let end = self[start...].firstIndex { $0.name.list != name } ?? endIndex
            lists[name] = self[start..<end]
            start = end
        }
        return lists
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

    fileprivate mutating func list(_ elements: ArraySlice<DatafileParts.Element>) {
        beginArray()
        for element in elements { raw(element.body) }
        endArray()
    }
}

public import JSON

// Datafiles as JSON documents, taken apart and put together. What a former datafile has, too, is taken over from it: the values
// and the texts of its elements.

extension DatafileParts {
    /// A datafile, and what it consists of.
    public typealias Known = (root: JSONObject, parts: DatafileParts)

    /// Takes a datafile apart, and compares it with the one before an edit. Elements that keep their place among the others
    /// keep their positions.
    ///
    /// - Parameters:
    ///   - former: `nil` if the former datafile was not stored in parts.
    ///   - edit: what differs between the two, if the caller knows it.
    /// - Returns: `nil` if the datafile cannot be stored in parts: an element has no name, or that of another of the list, or a
    ///   name is too long for an index of a database, or has a NUL, which PostgreSQL's texts cannot have.
    public static func edited(
        to root: JSONObject, since former: Known?, _ edit: DatafileEdit? = nil
    ) -> (parts: DatafileParts, change: Change)? {
        let (base, lists) = DocumentList.separated(root)
        let known = former.map { DocumentList.known($0) } ?? [:]
        var change = Change(base: JSONValue.object(base).encoded(), removed: [], put: [])
        var edited: [Identifier: List] = [:]
        for list in lists {
            let places = edit.flatMap { list.changedPlaces($0) }
            guard edited[list.name] == nil, let elements = change.add(list, replacing: known[list.name], places) else {
                return nil
            }
            edited[list.name] = elements
        }
        for (name, gone) in former?.parts.lists ?? [:] where edited[name] == nil {
            change.removed += gone.elements.map(\.name)
        }
        change.removed.sort()
        return (DatafileParts(base: change.base, edited), change)
    }

    /// Puts the datafile together.
    ///
    /// - Parameter former: a datafile that is probably similar.
    public func document(similarTo former: Known? = nil) throws(JSONError) -> JSONValue {
        guard case .object(var root) = try JSONParser().parse(base) else { return .null }
        let known = former.map { DocumentList.known($0) } ?? [:]
        func fill(_ owner: inout JSONObject, _ member: String, _ list: Identifier) throws(JSONError) {
            guard owner[member] != nil, let elements = lists[list]?.elements else { return }
            owner[member] = .array(try Self.values(of: elements, known[list]))
        }
        for (member, _) in Self.lists { try fill(&root, member, Identifier(member)) }
        if var groups = root["groups"]?.array {
            for index in groups.indices {
                guard var group = groups[index].object else { continue }
                try fill(&group, "experiments", DocumentList.list(ofGroup: group))
                groups[index] = .object(group)
            }
            root["groups"] = .array(groups)
        }
        if var own = root[Annotations.member]?.object {
            for member in Self.ownLists {
                let list = Self.list(ofOwn: member)
                guard own[member] != nil, let elements = lists[list]?.elements else { continue }
                let values = try Self.values(of: elements, known[list])
                own[member] = .object(
                    JSONObject(zip(elements, values).map { .init(key: $0.name.key.string, value: $1) }))
            }
            root[Annotations.member] = .object(own)
        }
        return .object(root)
    }

    private static func values(
        of elements: [Element], _ known: DocumentList.Known?
    ) throws(JSONError) -> [JSONValue] {
        let parser = JSONParser()
        if let known, let places = known.places(replacedBy: elements) {
            var values = known.list.values
            for place in places { values[place] = try parser.parse(elements[place].body) }
            return values
        }
        let indices = known?.indices ?? [:]
        var values: [JSONValue] = []
        values.reserveCapacity(elements.count)
        for element in elements {
            if let known, let place = indices[element.name.key], known.elements[place].body == element.body {
                values.append(known.list.values[place])
            } else {
                values.append(try parser.parse(element.body))
            }
        }
        return values
    }
}

/// A list of a document whose elements are parts.
private struct DocumentList {
    let name: Identifier
    let values: [JSONValue]
    let names: Names

    enum Names {
        /// The member that names an element.
        case member(String)
        case keys([String])
    }

    func key(at index: Int) -> Identifier? {
        switch names {
        case .member(let member): values[index].object?[member]?.string.map { Identifier($0) }
        case .keys(let keys): Identifier(keys[index])
        }
    }

    /// Returns the places of what an edit has changed; `nil` if it does not say.
    func changedPlaces(_ edit: DatafileEdit) -> [Int]? {
        switch name {
        case "experiments": edit.experiments
        case "featureFlags": edit.flags
        default: nil
        }
    }

    /// A list with its parts, which are in the same order.
    struct Known {
        let list: DocumentList
        let parts: DatafileParts.List

        var elements: [DatafileParts.Element] { parts.elements }

        /// Returns the indices of the elements that other ones with the same names replace; `nil` if any other element was added,
        /// removed or moved.
        func places(replacedBy edited: [DatafileParts.Element]) -> [Int]? {
            guard edited.count == elements.count else { return nil }
            let places = edited.unsharedPlaces(with: elements)
            guard places.allSatisfy({ edited[$0].name == elements[$0].name }) else { return nil }
            return places.filter { edited[$0].body != elements[$0].body }
        }

        var indices: [Identifier: Int] {
            Dictionary(elements.enumerated().map { ($1.name.key, $0) }, uniquingKeysWith: { $1 })
        }
    }

    static func known(_ datafile: DatafileParts.Known) -> [Identifier: Known] {
        var known: [Identifier: Known] = [:]
        for list in separated(datafile.root).lists {
            guard let parts = datafile.parts.lists[list.name], parts.elements.count == list.values.count else {
                continue
            }
            known[list.name] = Known(list: list, parts: parts)
        }
        return known
    }

    static func list(ofGroup group: JSONObject) -> Identifier {
        DatafileParts.list(ofGroup: Identifier(group["id"]?.string ?? ""))
    }

    /// Returns the document with empty lists, and those that are not empty.
    static func separated(_ root: JSONObject) -> (base: JSONObject, lists: [DocumentList]) {
        var (base, lists): (JSONObject, [DocumentList]) = (root, [])
        func take(_ owner: inout JSONObject, _ member: String, _ name: Identifier, namedBy key: String) {
            guard let values = owner[member]?.array, !values.isEmpty else { return }
            owner[member] = []
            lists.append(DocumentList(name: name, values: values, names: .member(key)))
        }
        for (member, key) in DatafileParts.lists { take(&base, member, Identifier(member), namedBy: key) }
        if var groups = base["groups"]?.array {
            for index in groups.indices {
                guard var group = groups[index].object else { continue }
                take(&group, "experiments", list(ofGroup: group), namedBy: "key")
                groups[index] = .object(group)
            }
            base["groups"] = .array(groups)
        }
        if var own = base[Annotations.member]?.object {
            for member in DatafileParts.ownLists {
                guard let elements = own[member]?.object, !elements.isEmpty else { continue }
                own[member] = .object(JSONObject())
                lists.append(
                    DocumentList(
                        name: DatafileParts.list(ofOwn: member), values: elements.map(\.value),
                        names: .keys(elements.map(\.key))))
            }
            base[Annotations.member] = .object(own)
        }
        return (base, lists)
    }
}

extension DatafileParts.Change {
    private static let step: Int64 = 1_024

    private static func isStorable(_ name: Identifier) -> Bool {
        let bytes = name.string.utf8
        return bytes.count <= 1_024 && !bytes.contains(0)
    }

    /// Adds what differs in a list.
    ///
    /// - Parameter places: those of what differs, if they are known.
    /// - Returns: the elements of the list; `nil` if they cannot be stored.
    fileprivate mutating func add(
        _ list: DocumentList, replacing known: DocumentList.Known?, _ places: [Int]?
    ) -> DatafileParts.List? {
        guard Self.isStorable(list.name) else { return nil }
        if let known, let edited = replaceInPlace(list, known, places) { return edited }
        var indices = known?.indices ?? [:]
        let lastKnown = known?.elements.last?.position ?? 0
        var (last, keys): (Int64, Set<Identifier>) = (0, [])
        var elements: [DatafileParts.Element] = []
        elements.reserveCapacity(list.values.count)
        for (index, value) in list.values.enumerated() {
            guard let key = list.key(at: index), keys.insert(key).inserted, Self.isStorable(key) else { return nil }
            let place = indices.removeValue(forKey: key)
            let former = place.flatMap { place in known.map { ($0.elements[place], $0.list.values[place]) } }
            if let former, former.0.position > last {
                last = former.0.position
            } else {
                last += last >= lastKnown ? Self.step : 1
            }
            let text = former.flatMap { $0.1 == value ? $0.0.body : nil } ?? value.encoded()
            let element = DatafileParts.Element(.init(list: list.name, key: key), position: last, body: text)
            elements.append(element)
            put(element, replacing: former?.0)
        }
        if let known { removed += indices.values.map { known.elements[$0].name } }
        return DatafileParts.List(elements)
    }

    /// - Returns: `nil` if other elements are in the list than before, or in another order.
    private mutating func replaceInPlace(
        _ list: DocumentList, _ known: DocumentList.Known, _ places: [Int]?
    ) -> DatafileParts.List? {
        if case (.keys(let keys), .keys(let former)) = (list.names, known.list.names), keys != former { return nil }
        guard list.values.count == known.elements.count else { return nil }
        let candidates = places.flatMap { $0.allSatisfy(list.values.indices.contains) ? $0 : nil }
        let places = (candidates ?? Array(list.values.indices)).filter { list.values[$0] != known.list.values[$0] }
        guard places.allSatisfy({ list.key(at: $0) == known.elements[$0].name.key }) else { return nil }
        var edited = known.parts
        for index in places {
            let former = known.elements[index]
            let element = DatafileParts.Element(
                former.name, position: former.position, body: list.values[index].encoded())
            edited.replace(at: index, with: element)
            put(element, replacing: former)
        }
        return edited
    }

    private mutating func put(_ element: DatafileParts.Element, replacing former: DatafileParts.Element?) {
        guard element != former else { return }
        if former != nil { removed.append(element.name) }
        put.append(element)
    }
}

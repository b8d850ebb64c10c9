public import JSON

// Datafiles as JSON documents, taken apart and put together. Elements that a former datafile has, too, are neither
// encoded nor parsed again: their texts and values are reused.

extension DatafileParts {
    /// A datafile as a document and in parts.
    public typealias Known = (root: JSONObject, parts: DatafileParts)

    /// Takes a datafile apart, and compares it with the datafile before an edit. Elements that are not moved keep their
    /// positions.
    ///
    /// - Parameters:
    ///   - former: the datafile before the edit; `nil` if it was not stored in parts.
    ///   - edit: the difference between the two; `nil` if the caller does not know it.
    /// - Returns: `nil` if the datafile cannot be stored in parts. Either an element has no name, or two elements have
    ///   the same name, or a name cannot be stored in a database. Such a name is too long for an index, or has a NUL,
    ///   which PostgreSQL refuses.
    public static func edited(
        to root: JSONObject, since former: Known?, _ edit: DatafileEdit? = nil
    ) -> (parts: DatafileParts, change: Change)? {
        let (base, lists) = DocumentList.separated(root)
        let formerLists = former.map { DocumentList.known($0) } ?? [:]
        var change = Change(base: JSONValue.object(base).encoded(), removed: [], put: [])
        var edited: [Identifier: List] = [:]
        for list in lists {
            let changedIndices = edit.flatMap { list.changedIndices(of: $0) }
            guard edited[list.name] == nil,
                let elements = change.add(list, replacing: formerLists[list.name], changedIndices)
            else { return nil }
            edited[list.name] = elements
        }
        for (name, removedList) in former?.parts.lists ?? [:] where edited[name] == nil {
            change.removed += removedList.elements.map(\.name)
        }
        change.removed.sort()
        return (DatafileParts(base: change.base, edited), change)
    }

    /// Returns the whole document.
    ///
    /// - Parameter former: a datafile that is probably similar. Elements that both have are not parsed again.
    public func document(similarTo former: Known? = nil) throws(JSONError) -> JSONValue {
        guard case .object(var root) = try JSONParser().parse(base) else { return .null }
        let formerLists = former.map { DocumentList.known($0) } ?? [:]
        func fill(_ owner: inout JSONObject, _ member: String, _ list: Identifier) throws(JSONError) {
            guard owner[member] != nil, let elements = lists[list]?.elements else { return }
            owner[member] = .array(try Self.values(of: elements, formerLists[list]))
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
        if var annotations = root[Annotations.member]?.object {
            for member in Self.ownLists {
                let list = Self.list(ofOwn: member)
                guard annotations[member] != nil, let elements = lists[list]?.elements else { continue }
                let values = try Self.values(of: elements, formerLists[list])
                let members = zip(elements, values).map { element, value in
                    JSONObject.Member(key: element.name.key.string, value: value)
                }
                annotations[member] = .object(JSONObject(members))
            }
            root[Annotations.member] = .object(annotations)
        }
        return .object(root)
    }

    /// Returns the values of some elements.
    ///
    /// - Parameter former: the list in a former datafile. Its values are reused for elements with the same text.
    private static func values(
        of elements: [Element], _ former: DocumentList.Known?
    ) throws(JSONError) -> [JSONValue] {
        let parser = JSONParser()
        if let former, let changedIndices = former.indices(replacedBy: elements) {
            var values = former.list.values
            for index in changedIndices { values[index] = try parser.parse(elements[index].body) }
            return values
        }
        let formerIndices = former?.indicesByKey ?? [:]
        var values: [JSONValue] = []
        values.reserveCapacity(elements.count)
        for element in elements {
            if let former, let index = formerIndices[element.name.key], former.elements[index].body == element.body {
                values.append(former.list.values[index])
            } else {
                values.append(try parser.parse(element.body))
            }
        }
        return values
    }
}

/// A list of a document whose elements are parts.
private struct DocumentList {
    /// The ``DatafileParts/Name/list`` of the elements.
    let name: Identifier
    let values: [JSONValue]
    let keys: Keys

    /// Where the keys of the elements are.
    enum Keys {
        /// Each value is an object, and this member of it is the key.
        case member(String)
        /// The list was made of an object whose members have these names.
        case names([String])
    }

    /// Returns the key of an element; `nil` if it has none.
    func key(at index: Int) -> Identifier? {
        switch keys {
        case .member(let member): values[index].object?[member]?.string.map { Identifier($0) }
        case .names(let names): Identifier(names[index])
        }
    }

    /// Returns the indices of the elements of this list that an edit has changed; `nil` if the edit does not say,
    /// because it has indices of experiments and flags only.
    func changedIndices(of edit: DatafileEdit) -> [Int]? {
        switch name {
        case "experiments": edit.experiments
        case "featureFlags": edit.flags
        default: nil
        }
    }

    /// A list with the values and the texts of its elements, both in the same order.
    struct Known {
        let list: DocumentList
        let parts: DatafileParts.List

        var elements: [DatafileParts.Element] { parts.elements }

        /// Returns the indices at which an edited list has another text; `nil` if an element was added, removed or
        /// moved.
        func indices(replacedBy edited: [DatafileParts.Element]) -> [Int]? {
            guard edited.count == elements.count else { return nil }
            let candidates = edited.unsharedPlaces(with: elements)
            guard candidates.allSatisfy({ edited[$0].name == elements[$0].name }) else { return nil }
            return candidates.filter { edited[$0].body != elements[$0].body }
        }

        /// The indices of the elements, by their keys.
        var indicesByKey: [Identifier: Int] {
            Dictionary(elements.enumerated().map { ($1.name.key, $0) }, uniquingKeysWith: { $1 })
        }
    }

    /// Returns the lists of a datafile by their names. A list whose parts do not match is left out.
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

    /// Returns the name of the list that has the experiments of a group.
    static func list(ofGroup group: JSONObject) -> Identifier {
        DatafileParts.list(ofGroup: Identifier(group["id"]?.string ?? ""))
    }

    /// Separates a document into its lists and the base, in which these lists are empty. Lists without elements are not
    /// returned.
    static func separated(_ root: JSONObject) -> (base: JSONObject, lists: [DocumentList]) {
        var base = root
        var lists: [DocumentList] = []
        func take(_ owner: inout JSONObject, _ member: String, _ name: Identifier, namedBy key: String) {
            guard let values = owner[member]?.array, !values.isEmpty else { return }
            owner[member] = []
            lists.append(DocumentList(name: name, values: values, keys: .member(key)))
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
        if var annotations = base[Annotations.member]?.object {
            for member in DatafileParts.ownLists {
                guard let elements = annotations[member]?.object, !elements.isEmpty else { continue }
                annotations[member] = .object(JSONObject())
                lists.append(
                    DocumentList(
                        name: DatafileParts.list(ofOwn: member), values: elements.map(\.value),
                        keys: .names(elements.map(\.key))))
            }
            base[Annotations.member] = .object(annotations)
        }
        return (base, lists)
    }
}

extension DatafileParts.Change {
    /// The distance between the positions of neighbours. The gaps leave room for elements that are inserted or moved.
    private static let positionStep: Int64 = 1_024
    /// The maximum length of a name, in bytes. A longer one does not fit into the index of every database.
    private static let longestName = 1_024

    private static func isStorable(_ name: Identifier) -> Bool {
        let bytes = name.string.utf8
        return bytes.count <= longestName && !bytes.contains(0)
    }

    /// Adds the differences between a list and its former version.
    ///
    /// - Parameters:
    ///   - former: the list before the edit; `nil` if there was none.
    ///   - changedIndices: the indices of the elements that differ; `nil` if they are not known.
    /// - Returns: the elements of the list; `nil` if they cannot be stored.
    fileprivate mutating func add(
        _ list: DocumentList, replacing former: DocumentList.Known?, _ changedIndices: [Int]?
    ) -> DatafileParts.List? {
        guard Self.isStorable(list.name) else { return nil }
        if let former, let edited = replaceInPlace(list, former, changedIndices) { return edited }
        var formerIndices = former?.indicesByKey ?? [:]
        let lastFormerPosition = former?.elements.last?.position ?? 0
        var position: Int64 = 0
        var keys: Set<Identifier> = []
        var elements: [DatafileParts.Element] = []
        elements.reserveCapacity(list.values.count)
        for (index, value) in list.values.enumerated() {
            guard let key = list.key(at: index), keys.insert(key).inserted, Self.isStorable(key) else { return nil }
            let formerIndex = formerIndices.removeValue(forKey: key)
            let formerElement = formerIndex.flatMap { former?.elements[$0] }
            let formerValue = formerIndex.flatMap { former?.list.values[$0] }
            // An element that is not moved keeps its position. Any other element gets a position after the preceding
            // element: a whole step further at the end of the list, and 1 further between former elements, where only
            // the gaps are free.
            if let formerElement, formerElement.position > position {
                position = formerElement.position
            } else {
                position += position >= lastFormerPosition ? Self.positionStep : 1
            }
            let knownText = formerValue == value ? formerElement?.body : nil
            let element = DatafileParts.Element(
                .init(list: list.name, key: key), position: position, body: knownText ?? value.encoded())
            // An equal former element is kept as an object, because it also has its version.
            let isKept = formerElement == element
            elements.append(isKept ? formerElement ?? element : element)
            put(element, replacing: formerElement)
        }
        // The indices that are left belong to elements that the edit has removed.
        if let former { removed += formerIndices.values.map { former.elements[$0].name } }
        return DatafileParts.List(elements)
    }

    /// Adds the differences between two versions of a list that have the same elements in the same order.
    ///
    /// - Returns: the elements of the list; `nil` if an element was added, removed or moved.
    private mutating func replaceInPlace(
        _ list: DocumentList, _ former: DocumentList.Known, _ changedIndices: [Int]?
    ) -> DatafileParts.List? {
        if case (.names(let names), .names(let formerNames)) = (list.keys, former.list.keys), names != formerNames {
            return nil
        }
        guard list.values.count == former.elements.count else { return nil }
        let allIndices = list.values.indices
        let areValid = changedIndices?.allSatisfy(allIndices.contains) ?? false
        let candidates = areValid ? changedIndices ?? [] : Array(allIndices)
        let indices = candidates.filter { list.values[$0] != former.list.values[$0] }
        guard indices.allSatisfy({ list.key(at: $0) == former.elements[$0].name.key }) else { return nil }
        var edited = former.parts
        for index in indices {
            let formerElement = former.elements[index]
            let element = DatafileParts.Element(
                formerElement.name, position: formerElement.position, body: list.values[index].encoded())
            edited.replace(at: index, with: element)
            put(element, replacing: formerElement)
        }
        return edited
    }

    /// Adds an element, unless it is as before.
    private mutating func put(_ element: DatafileParts.Element, replacing former: DatafileParts.Element?) {
        guard element != former else { return }
        if former != nil { removed.append(element.name) }
        put.append(element)
    }
}

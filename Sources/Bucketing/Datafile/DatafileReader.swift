import JSON

/// Takes members out of a datafile, and notes what is missing or of the wrong kind instead of stopping there.
///
/// For a member that is wrong an empty value is answered; the datafile is refused in the end anyway.
struct DatafileReader {
    /// A value and its place.
    struct Node {
        let value: JSONValue
        let pointer: JSONPointer
    }

    private(set) var problems: [DatafileError.Problem] = []

    mutating func refuse(_ pointer: JSONPointer, _ reason: String) {
        problems.append(DatafileError.Problem(pointer: pointer, reason: reason))
    }

    /// A member that must be there.
    private mutating func required<Value>(
        _ key: String, of node: Node, _ kind: String, _ read: (JSONValue) -> Value?
    ) -> Value? {
        guard let value = node.value.object?[key] else {
            refuse(node.pointer, "`\(key)` is required")
            return nil
        }
        if let read = read(value) { return read }
        refuse(node.pointer.appending(key), "`\(key)` must be \(kind); got \(value.kind)")
        return nil
    }

    /// A member that may be absent or null.
    private mutating func optional<Value>(
        _ key: String, of node: Node, _ kind: String, _ read: (JSONValue) -> Value?
    ) -> Value? {
        guard let value = node.value.object?[key], !value.isNull else { return nil }
        if let read = read(value) { return read }
        refuse(node.pointer.appending(key), "`\(key)` must be \(kind); got \(value.kind)")
        return nil
    }
}

// MARK: - Strings, booleans, numbers

extension DatafileReader {
    mutating func string(_ key: String, of node: Node) -> String {
        required(key, of: node, "a string", \.string) ?? ""
    }

    mutating func id(_ key: String, of node: Node) -> Identifier {
        Identifier(string(key, of: node))
    }

    mutating func optionalString(_ key: String, of node: Node) -> String? {
        optional(key, of: node, "a string", \.string)
    }

    mutating func optionalBool(_ key: String, of node: Node) -> Bool? {
        optional(key, of: node, "a boolean", \.bool)
    }

    /// The end of a range of bucket values. A fraction counts as the next whole number, as for a bucket value that
    /// is compared with it.
    mutating func endOfRange(_ key: String, of node: Node) -> Int {
        let end = required(key, of: node, "a number", \.double) ?? 0
        return Int(max(0, min(end, Double(Bucketer.bucketCount))).rounded(.up))
    }
}

// MARK: - Lists and objects

extension DatafileReader {
    /// The elements of a list of objects; those of another kind are refused and left out.
    mutating func objects(_ key: String, of node: Node, isOptional: Bool = false) -> [Node] {
        let list: [JSONValue]?
        if isOptional {
            list = optional(key, of: node, "an array", \.array)
        } else {
            list = required(key, of: node, "an array", \.array)
        }
        let pointer = node.pointer.appending(key)
        return (list ?? []).enumerated().compactMap { index, element in
            let place = pointer.appending(index)
            guard element.object != nil else {
                refuse(place, "an element must be an object; got \(element.kind)")
                return nil
            }
            return Node(value: element, pointer: place)
        }
    }

    mutating func ids(_ key: String, of node: Node) -> [Identifier] {
        let list = required(key, of: node, "an array", \.array)
        return ids(list ?? [], at: node.pointer.appending(key))
    }

    /// - Returns: `nil` if there is no such member.
    mutating func optionalIDs(_ key: String, of node: Node) -> [Identifier]? {
        let list = optional(key, of: node, "an array", \.array)
        return list.map { ids($0, at: node.pointer.appending(key)) }
    }

    private mutating func ids(_ list: [JSONValue], at pointer: JSONPointer) -> [Identifier] {
        list.enumerated().map { index, element in
            if let text = element.string { return Identifier(text) }
            refuse(pointer.appending(index), "an element must be a string; got \(element.kind)")
            return ""
        }
    }

    /// An object whose values are texts.
    mutating func texts(_ key: String, of node: Node) -> [Identifier: Identifier] {
        let object = required(key, of: node, "an object", \.object) ?? JSONObject()
        let pointer = node.pointer.appending(key)
        var texts: [Identifier: Identifier] = [:]
        for member in object {
            if let text = member.value.string {
                texts[Identifier(member.key)] = Identifier(text)
            } else {
                refuse(pointer.appending(member.key), "a member must be a string; got \(member.value.kind)")
            }
        }
        return texts
    }

    mutating func optionalObject(_ key: String, of node: Node) -> Node? {
        optional(key, of: node, "an object", \.object).map {
            Node(value: .object($0), pointer: node.pointer.appending(key))
        }
    }
}

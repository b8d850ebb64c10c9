import JSON

/// Reads typed members of JSON objects, such as "a required string", and collects problems instead of stopping at the
/// first one. ``DatafileReader`` reads the root of a datafile with it; its methods for elements are in
/// `ElementReader.swift`.
///
/// A missing or wrong member is read as an empty value, because a datafile with problems is rejected in the end.
struct MemberReader {
    /// A value and its location in the datafile.
    struct Node {
        let value: JSONValue
        /// The location of the value, or of the list if the value is an element.
        private let base: JSONPointer
        /// The place of the value in its list; `nil` if the value is no element.
        private let index: Int?

        init(value: JSONValue, pointer: JSONPointer) {
            self.value = value
            base = pointer
            index = nil
        }

        /// Creates the node of an element. Its pointer is built only when a problem needs it, because most elements
        /// have none.
        init(element: JSONValue, _ index: Int, of list: JSONPointer) {
            value = element
            base = list
            self.index = index
        }

        var pointer: JSONPointer { index.map { base.appending($0) } ?? base }

        var annotations: JSONObject? { value.object?[Annotations.member]?.object }
    }

    private(set) var problems: [JSONFault] = []

    /// Records a problem.
    mutating func reject(_ pointer: JSONPointer, _ reason: String) {
        problems.append(JSONFault(pointer: pointer, reason: reason))
    }

    /// Reads a required member.
    ///
    /// - Parameters:
    ///   - kind: the required type, for the problem: "a string".
    ///   - read: returns the value if it has the required type.
    private mutating func required<Value>(
        _ key: String, of node: Node, _ kind: String, _ read: (JSONValue) -> Value?
    ) -> Value? {
        guard let value = node.value.object?[key] else {
            reject(node.pointer, "`\(key)` is required")
            return nil
        }
        if let read = read(value) { return read }
        reject(node.pointer.appending(key), "`\(key)` must be \(kind); got \(value.kind)")
        return nil
    }

    /// Reads a member that may be absent or null.
    private mutating func optional<Value>(
        _ key: String, of node: Node, _ kind: String, _ read: (JSONValue) -> Value?
    ) -> Value? {
        guard let value = node.value.object?[key], !value.isNull else { return nil }
        if let read = read(value) { return read }
        reject(node.pointer.appending(key), "`\(key)` must be \(kind); got \(value.kind)")
        return nil
    }
}

// MARK: - Strings, booleans, numbers

extension MemberReader {
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

    /// Reads the end of a range of bucket values, 0...10000. Fractions are rounded up, which does not change how a
    /// whole bucket value compares with the end.
    mutating func endOfRange(_ key: String, of node: Node) -> Int {
        let end = required(key, of: node, "a number", \.double) ?? 0
        return Int(max(0, min(end, Double(Bucketer.bucketCount))).rounded(.up))
    }
}

// MARK: - Lists and objects

extension MemberReader {
    /// Reads a list of objects. Elements that are no objects are left out and recorded as problems.
    mutating func objects(_ key: String, of node: Node, isOptional: Bool = false) -> [Node] {
        let list: [JSONValue]?
        if isOptional {
            list = optional(key, of: node, "an array", \.array)
        } else {
            list = required(key, of: node, "an array", \.array)
        }
        let pointer = node.pointer.appending(key)
        return (list ?? []).enumerated().compactMap { index, element in
            let node = Node(element: element, index, of: pointer)
            guard element.object != nil else {
                reject(node.pointer, "an element must be an object; got \(element.kind)")
                return nil
            }
            return node
        }
    }

    mutating func ids(_ key: String, of node: Node) -> [Identifier] {
        let list = required(key, of: node, "an array", \.array)
        return ids(list ?? [], at: node.pointer.appending(key))
    }

    /// - Returns: `nil` if the member is absent or null.
    mutating func optionalIDs(_ key: String, of node: Node) -> [Identifier]? {
        let list = optional(key, of: node, "an array", \.array)
        return list.map { ids($0, at: node.pointer.appending(key)) }
    }

    private mutating func ids(_ list: [JSONValue], at pointer: JSONPointer) -> [Identifier] {
        list.enumerated().map { index, element in
            if let text = element.string { return Identifier(text) }
            reject(pointer.appending(index), "an element must be a string; got \(element.kind)")
            return ""
        }
    }

    /// Reads an object whose values are strings.
    mutating func strings(_ key: String, of node: Node) -> [Identifier: Identifier] {
        let object = required(key, of: node, "an object", \.object) ?? JSONObject()
        let pointer = node.pointer.appending(key)
        var strings: [Identifier: Identifier] = [:]
        for member in object {
            if let text = member.value.string {
                strings[Identifier(member.key)] = Identifier(text)
            } else {
                reject(pointer.appending(member.key), "a member must be a string; got \(member.value.kind)")
            }
        }
        return strings
    }

    mutating func optionalObject(_ key: String, of node: Node) -> Node? {
        optional(key, of: node, "an object", \.object).map {
            Node(value: .object($0), pointer: node.pointer.appending(key))
        }
    }
}

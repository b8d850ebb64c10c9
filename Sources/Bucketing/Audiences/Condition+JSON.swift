import JSON

extension Condition {
    /// Compiles `["and", leaf, ["or", leaf, …], …]`; a list without operator means `or`.
    ///
    /// - Parameter leaf: compiles what is not a list.
    init(_ value: JSONValue, leaf: (JSONValue) -> Condition) {
        guard let list = value.array else {
            self = leaf(value)
            return
        }
        let operands = list.dropFirst()
        switch list.first?.string {
        case "and": self = .and(operands.map { Condition($0, leaf: leaf) })
        case "or": self = .or(operands.map { Condition($0, leaf: leaf) })
        case "not": self = .not(operands.first.map { Condition($0, leaf: leaf) })
        default: self = list.isEmpty ? .invalid : .or(list.map { Condition($0, leaf: leaf) })
        }
    }

    /// The conditions of an audience: the leaves are conditions on attributes, or `{"segment":"…"}`.
    init(audience value: JSONValue) {
        self.init(value) { leaf in
            guard let object = leaf.object else { return .invalid }
            if object.count == 1, let segment = object["segment"]?.string { return .segment(Identifier(segment)) }
            return .attribute(AttributeCondition(object))
        }
    }

    /// The audience of an experiment: the leaves are ids of audiences. An empty list is everyone.
    ///
    /// - Returns: `nil` for everyone.
    static func ofExperiment(_ value: JSONValue, audiences: [Identifier: Condition]) -> Condition? {
        if value.array?.isEmpty == true { return nil }
        return Condition(value) { leaf in
            guard let id = leaf.string else { return .invalid }
            return audiences[Identifier(id)].map { .audience(Identifier(id), $0) } ?? .missingAudience(id)
        }
    }
}

public import JSON

/// The checked value of a stored attribute.
public enum AttributeValue: Sendable, Hashable {
    case bool(Bool)
    /// Finite.
    case number(Double)
    case text(Identifier)
    /// A date, a time or a timestamp, in a form whose order is the order of time.
    case moment(Identifier)
    /// In the order of the definition's allowed values; never empty.
    case selection([Identifier])
}

extension AttributeValue {
    /// The value as the API writes it.
    ///
    /// - Parameter isMultiple: whether a selection is an array, even of one.
    public func json(isMultiple: Bool) -> JSONValue {
        switch self {
        case .bool(let bool): .bool(bool)
        case .number(let number): Int64(exactly: number).map { .integer($0) } ?? .number(number)
        case .text(let text), .moment(let text): .string(text.string)
        case .selection(let values):
            isMultiple ? .array(values.map { .string($0.string) }) : .string(values.first?.string ?? "")
        }
    }
}

import JSON

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

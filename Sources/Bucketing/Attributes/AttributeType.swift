/// What the values of a stored attribute are.
public enum AttributeType: String, Sendable, CaseIterable {
    /// UTF-8 of up to ``AttributeDefinition/longestText`` bytes.
    case string
    case number
    case boolean
    /// ISO 3166-1 alpha-2 in lower case.
    case country
    /// `yyyy-mm-dd`
    case date
    /// `HH:MM` of 24 hours, without a zone.
    case time
    /// RFC 3339, kept in UTC.
    case timestamp
    /// One or several of the values that the definition allows.
    case selection
}

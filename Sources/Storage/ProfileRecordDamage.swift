/// What is wrong with bytes that should be a ``ProfileRecord``.
public enum ProfileRecordDamage: Error, Hashable, Sendable {
    /// The first byte names a format that this program does not know.
    case unknownVersion(UInt8)
    /// The bytes end within a value.
    case truncated
    /// A number does not fit 64 bits, or a length does not fit the record.
    case numberOutOfRange
    /// The source of an entry is none of ``Assignment/Source``.
    case unknownSource(UInt8)
    /// An id is not UTF-8.
    case invalidText
    /// Experiment ids are not in ascending order.
    case unordered
    /// The header does not agree with the entries.
    case wrongHeader
}

/// Reads JSON texts (RFC 8259), strictly: valid UTF-8, one value, nothing after it but white space.
///
/// Where the RFC leaves the choice to the reader:
/// - A whole number beyond 64 bits becomes the nearest `Double`; a number beyond `Double` is refused.
/// - An escaped surrogate without its partner is refused, as no text can hold it.
/// - A byte order mark is refused.
public struct JSONParser: Sendable {
    public enum DuplicateKeys: Sendable {
        /// The last value counts, at the place of the first, as in Python's `json`.
        case lastWins
        case refused
    }

    /// How many arrays and objects may lie inside one another.
    public var maximumDepth: Int
    public var duplicateKeys: DuplicateKeys

    public init(maximumDepth: Int = 128, duplicateKeys: DuplicateKeys = .lastWins) {
        self.maximumDepth = maximumDepth
        self.duplicateKeys = duplicateKeys
    }

    public func parse(_ bytes: UnsafeRawBufferPointer) throws(JSONError) -> JSONValue {
        var reader = JSONReader(bytes: bytes, maximumDepth: maximumDepth, duplicateKeys: duplicateKeys)
        do {
            return try reader.document()
        } catch {
            var located = error
            located.line = 1 + bytes.prefix(error.offset).count { $0 == UInt8(ascii: "\n") }
            throw located
        }
    }

    public func parse(_ bytes: [UInt8]) throws(JSONError) -> JSONValue {
        let result: Result<JSONValue, JSONError> = bytes.withUnsafeBytes { buffer in
            do throws(JSONError) {
                return .success(try parse(buffer))
            } catch {
                return .failure(error)
            }
        }
        return try result.get()
    }

    public func parse(_ text: String) throws(JSONError) -> JSONValue {
        try parse(Array(text.utf8))
    }
}

/// Parses JSON texts (RFC 8259) strictly: valid UTF-8, one value, then nothing but white space.
///
/// Where the RFC leaves a choice:
/// - An integer that does not fit 64 bits becomes the nearest `Double`; a number that `Double` cannot hold is refused.
/// - An unpaired escaped surrogate is refused, because UTF-8 cannot represent it.
/// - A byte order mark is refused.
public struct JSONParser: Sendable {
    /// What to do if an object has a key twice.
    public enum DuplicateKeys: Sendable {
        /// The last value wins, at the position of the first, as in Python's `json`.
        case lastWins
        /// An object with such a key is an error.
        case refused
    }

    /// How deeply arrays and objects may be nested. Bounds the use of the stack, because the parser is recursive.
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

/// Why and where a text is not JSON.
public struct JSONError: Error, Sendable, Equatable {
    /// What was expected, as a phrase.
    public var message: String
    /// The index of the byte at which parsing stopped.
    public var offset: Int
    /// The line of that byte, from 1; lines end with a line feed.
    public var line: Int
    /// The innermost value that was being parsed.
    public var pointer: JSONPointer

    init(_ message: String, offset: Int) {
        self.message = message
        self.offset = offset
        line = 1
        pointer = JSONPointer()
    }

    /// Returns the error of a value as an error of the object that has the value under a key.
    func inside(_ key: String) -> JSONError {
        var error = self
        error.pointer.prepend(key)
        return error
    }

    /// Returns the error of an element as an error of the array.
    func inside(_ index: Int) -> JSONError {
        var error = self
        error.pointer.prepend(index)
        return error
    }
}

extension JSONError: CustomStringConvertible {
    public var description: String {
        let place = pointer.string.isEmpty ? "" : ", in \(pointer)"
        return "\(message) (line \(line), byte \(offset)\(place))"
    }
}

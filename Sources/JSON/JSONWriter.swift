/// Writes a JSON text without white space, value by value, and inserts the commas.
///
///     var writer = JSONWriter()
///     writer.beginObject()
///     writer.member("user_id", "u1")
///     writer.key("tags")
///     writer.beginArray()
///     writer.string("a")
///     writer.endArray()
///     writer.endObject()
///     writer.finish()  // {"user_id":"u1","tags":["a"]}
///
/// Numbers have the fewest digits that read back as the same `Double`, with `.0` where they are whole. Characters
/// beyond ASCII are not escaped. The caller is responsible for correct nesting.
public struct JSONWriter: Sendable {
    private var output: ByteOutput
    /// Whether a comma must precede the next value or key.
    private var needsComma = false

    /// - Parameters:
    ///   - bytes: the text is appended to these.
    ///   - capacity: bytes to allocate at once.
    public init(appendingTo bytes: consuming [UInt8] = [], capacity: Int = 256) {
        output = ByteOutput(bytes, capacity: capacity)
    }

    /// Returns everything written.
    public consuming func finish() -> [UInt8] {
        output.finish()
    }

    /// Returns what was written so far and keeps the writer's state, for a text that is sent in pieces.
    public mutating func take() -> [UInt8] {
        // Swaps instead of copying a reference, because an array with two owners is copied when one of them changes it.
        var taken = ByteOutput([], capacity: 0)
        swap(&taken, &output)
        return taken.finish()
    }

    /// The number of bytes written so far.
    public var count: Int { output.count }

    public mutating func beginObject() {
        begin(UInt8(ascii: "{"))
    }

    public mutating func endObject() {
        end(UInt8(ascii: "}"))
    }

    public mutating func beginArray() {
        begin(UInt8(ascii: "["))
    }

    public mutating func endArray() {
        end(UInt8(ascii: "]"))
    }

    /// Writes the key of the next member, a name that needs no escapes. Write its value next.
    public mutating func key(_ name: StaticString) {
        separate()
        let name = UnsafeBufferPointer(start: name.utf8Start, count: name.utf8CodeUnitCount)
        output.appendQuoted(plain: name, and: UInt8(ascii: ":"))
        needsComma = false
    }

    /// Writes the key of the next member, any text.
    public mutating func key(text: String) {
        withBytes(of: text) { writer, bytes in writer.key(utf8: bytes) }
    }

    public mutating func null() {
        raw("null")
    }

    public mutating func bool(_ value: Bool) {
        raw(value ? "true" : "false")
    }

    public mutating func integer(_ value: some BinaryInteger) {
        raw(value.description)
    }

    /// Writes a number; `null` if it is not finite, because JSON has no such numbers.
    public mutating func number(_ value: Double) {
        raw(value.isFinite ? value.description : "null")
    }

    /// Writes a number as ``JSONValue/shortest(_:)`` has it.
    public mutating func shortest(_ value: Double) {
        if let integer = Int64(exactly: value) { self.integer(integer) } else { number(value) }
    }

    public mutating func string(_ value: String) {
        withBytes(of: value) { writer, bytes in writer.string(utf8: bytes) }
    }

    /// Writes the key of the next member from UTF-8 bytes.
    public mutating func key(utf8: UnsafeBufferPointer<UInt8>) {
        separate()
        output.appendQuoted(utf8, and: UInt8(ascii: ":"))
        needsComma = false
    }

    /// Writes a string from UTF-8 bytes.
    public mutating func string(utf8: UnsafeBufferPointer<UInt8>) {
        separate()
        output.appendQuoted(utf8)
    }

    /// Writes bytes as a string in the encoding of ``Base64URL``.
    package mutating func string(base64URL bytes: UnsafeRawBufferPointer) {
        separate()
        output.appendBase64URL(bytes)
    }

    /// Writes a value that is already JSON.
    public mutating func raw(_ json: String) {
        separate()
        withBytes(of: json) { writer, bytes in writer.output.append(bytes) }
    }

    /// Writes a value that is already JSON.
    public mutating func raw(_ json: [UInt8]) {
        raw(json[...])
    }

    /// Writes a value that is already JSON.
    public mutating func raw(_ json: ArraySlice<UInt8>) {
        separate()
        json.withUnsafeBufferPointer { output.append($0) }
    }

    /// Writes a line feed; the next value starts a new text.
    public mutating func endLine() {
        output.append(UInt8(ascii: "\n"))
        needsComma = false
    }

    private mutating func withBytes(
        of text: String, _ body: (inout JSONWriter, UnsafeBufferPointer<UInt8>) -> Void
    ) {
        if text.utf8.withContiguousStorageIfAvailable({ body(&self, $0) }) == nil {
            Array(text.utf8).withUnsafeBufferPointer { body(&self, $0) }
        }
    }

    private mutating func begin(_ bracket: UInt8) {
        separate()
        output.append(bracket)
        needsComma = false
    }

    private mutating func end(_ bracket: UInt8) {
        output.append(bracket)
        needsComma = true
    }

    /// Writes the comma before a value or key, unless this is the first one.
    private mutating func separate() {
        if needsComma { output.append(UInt8(ascii: ",")) }
        needsComma = true
    }
}

// MARK: - Members and values

/// Each of these writes a member of an object: its key, which must need no escapes, and its value.
extension JSONWriter {
    public mutating func member(_ name: StaticString, _ text: String) {
        key(name)
        string(text)
    }

    public mutating func member(_ name: StaticString, _ text: String?) {
        key(name)
        if let text { string(text) } else { null() }
    }

    /// Writes bytes as a string in the encoding of ``Base64URL``; `nil` as `null`.
    package mutating func member(_ name: StaticString, base64URL bytes: [UInt8]?) {
        key(name)
        guard let bytes else { return null() }
        bytes.withUnsafeBytes { string(base64URL: $0) }
    }

    public mutating func member(_ name: StaticString, _ flag: Bool) {
        key(name)
        bool(flag)
    }

    public mutating func member(_ name: StaticString, _ number: some BinaryInteger) {
        key(name)
        integer(number)
    }

    public mutating func member(_ name: StaticString, _ texts: [String]) {
        key(name)
        beginArray()
        for text in texts { string(text) }
        endArray()
    }
}

extension JSONWriter {
    /// Writes a whole value.
    ///
    /// - Parameter sortingKeys: whether to sort the members of objects by the bytes of their keys.
    public mutating func value(_ value: JSONValue, sortingKeys: Bool = false) {
        switch value {
        case .null: null()
        case .bool(let value): bool(value)
        case .integer(let value): integer(value)
        case .number(let value): number(value)
        case .string(let value): string(value)
        case .array(let elements):
            beginArray()
            for element in elements {
                self.value(element, sortingKeys: sortingKeys)
            }
            endArray()
        case .object(let object):
            let members = object.members
            beginObject()
            for member in sortingKeys ? members.sorted(by: { $0.key.precedesByBytes($1.key) }) : members {
                key(text: member.key)
                self.value(member.value, sortingKeys: sortingKeys)
            }
            endObject()
        }
    }
}

extension JSONValue {
    /// Returns the value as JSON text without white space.
    public func encoded(sortingKeys: Bool = false) -> [UInt8] {
        var writer = JSONWriter()
        writer.value(self, sortingKeys: sortingKeys)
        return writer.finish()
    }
}

/// Writes a JSON text without white space, value after value; commas are put where they belong.
///
/// Numbers have the fewest digits that read back as the same `Double`, with `.0` where they are whole. Characters
/// beyond ASCII are written as themselves. The caller sees to the nesting.
public struct JSONWriter: Sendable {
    /// All that was written so far.
    public var bytes: [UInt8]
    private var needsComma = false

    /// - Parameter bytes: what the text is appended to.
    public init(appendingTo bytes: consuming [UInt8] = []) {
        self.bytes = bytes
    }

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

    /// The key of the object's next member; its value is what is written next.
    public mutating func key(_ key: String) {
        separate()
        appendQuoted(key)
        bytes.append(UInt8(ascii: ":"))
        needsComma = false
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

    /// A number that is not finite, which JSON cannot say, is written as `null`.
    public mutating func number(_ value: Double) {
        raw(value.isFinite ? value.description : "null")
    }

    public mutating func string(_ value: String) {
        separate()
        appendQuoted(value)
    }

    /// The key of the object's next member, as the bytes of UTF-8 text.
    public mutating func key(utf8: UnsafeBufferPointer<UInt8>) {
        separate()
        appendQuoted(utf8)
        bytes.append(UInt8(ascii: ":"))
        needsComma = false
    }

    /// A string, as the bytes of UTF-8 text.
    public mutating func string(utf8: UnsafeBufferPointer<UInt8>) {
        separate()
        appendQuoted(utf8)
    }

    /// A value that is JSON already.
    public mutating func raw(_ json: String) {
        separate()
        bytes.append(contentsOf: json.utf8)
    }

    /// A value that is JSON already.
    public mutating func raw(_ json: some Collection<UInt8>) {
        separate()
        bytes.append(contentsOf: json)
    }

    private mutating func begin(_ bracket: UInt8) {
        separate()
        bytes.append(bracket)
        needsComma = false
    }

    private mutating func end(_ bracket: UInt8) {
        bytes.append(bracket)
        needsComma = true
    }

    private mutating func separate() {
        if needsComma { bytes.append(UInt8(ascii: ",")) }
        needsComma = true
    }
}

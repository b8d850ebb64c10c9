/// Writes a JSON text without white space, value after value; commas are put where they belong.
///
/// Numbers have the fewest digits that read back as the same `Double`, with `.0` where they are whole. Characters
/// beyond ASCII are written as themselves. The caller sees to the nesting.
public struct JSONWriter: Sendable {
    private var output: ByteOutput
    private var needsComma = false

    /// - Parameters:
    ///   - bytes: what the text is appended to.
    ///   - capacity: bytes for which room is made at once.
    public init(appendingTo bytes: consuming [UInt8] = [], capacity: Int = 256) {
        output = ByteOutput(bytes, capacity: capacity)
    }

    /// All that was written.
    public consuming func finish() -> [UInt8] {
        output.finish()
    }

    /// What was written so far, for a text that is sent in pieces; it goes on behind that.
    public mutating func take() -> [UInt8] {
        // Exchanged, as what two hold would be copied.
        var taken = ByteOutput([], capacity: 0)
        swap(&taken, &output)
        return taken.finish()
    }

    /// Bytes that were written so far.
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

    /// The key of the object's next member, a name that needs no escapes; its value is what is written next.
    public mutating func key(_ name: StaticString) {
        separate()
        let name = UnsafeBufferPointer(start: name.utf8Start, count: name.utf8CodeUnitCount)
        output.appendQuoted(plain: name, and: UInt8(ascii: ":"))
        needsComma = false
    }

    /// The key of the object's next member, any text.
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

    /// A number that is not finite, which JSON cannot say, is written as `null`.
    public mutating func number(_ value: Double) {
        raw(value.isFinite ? value.description : "null")
    }

    public mutating func string(_ value: String) {
        withBytes(of: value) { writer, bytes in writer.string(utf8: bytes) }
    }

    /// The key of the object's next member, as the bytes of UTF-8 text.
    public mutating func key(utf8: UnsafeBufferPointer<UInt8>) {
        separate()
        output.appendQuoted(utf8, and: UInt8(ascii: ":"))
        needsComma = false
    }

    /// A string, as the bytes of UTF-8 text.
    public mutating func string(utf8: UnsafeBufferPointer<UInt8>) {
        separate()
        output.appendQuoted(utf8)
    }

    /// A value that is JSON already.
    public mutating func raw(_ json: String) {
        separate()
        withBytes(of: json) { writer, bytes in writer.output.append(bytes) }
    }

    /// A value that is JSON already.
    public mutating func raw(_ json: [UInt8]) {
        raw(json[...])
    }

    /// A value that is JSON already.
    public mutating func raw(_ json: ArraySlice<UInt8>) {
        separate()
        json.withUnsafeBufferPointer { output.append($0) }
    }

    /// Ends the text with a line feed.
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

    private mutating func separate() {
        if needsComma { output.append(UInt8(ascii: ",")) }
        needsComma = true
    }
}

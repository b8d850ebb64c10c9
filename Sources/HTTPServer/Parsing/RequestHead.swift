/// The request line and the fields of one request, as positions in the bytes that they were read from.
struct RequestHead {
    /// One field line; the value without the white space around it.
    struct Field {
        var name: Range<Int>
        var value: Range<Int>
    }

    /// How the end of the body is found (RFC 9112 §6.3).
    enum BodyLength: Equatable {
        case none
        case fixed(Int)
        case chunked
    }

    var method: Method = .get
    /// The path and the query of the target, both still percent-encoded, without the `?`. An empty path is `/`.
    var path: Range<Int> = 0..<0
    var query: Range<Int> = 0..<0
    /// HTTP/1.1 or a later 1.x, as against HTTP/1.0.
    var isVersion11 = true
    /// Whether the connection may serve another request (RFC 9112 §9.3).
    var keepsAlive = true
    var body: BodyLength = .none
    var expectsContinue = false
    var fields: [Field] = []
    /// Bytes of the whole head, its empty line included.
    var length = 0

    /// The value of the first field of this name, which is written in lower case.
    func value(of name: StaticString, in bytes: UnsafeRawBufferPointer) -> UnsafeRawBufferPointer? {
        for field in fields where isNamed(field, name, bytes) { return bytes[slice: field.value] }
        return nil
    }

    /// The values of all fields of this name with commas between them (RFC 9110 §5.3), as text.
    func joinedValue(of name: StaticString, in bytes: UnsafeRawBufferPointer) -> String? {
        var joined: String?
        for field in fields where isNamed(field, name, bytes) {
            let value = String(decoding: bytes[slice: field.value], as: UTF8.self)
            joined = joined.map { "\($0), \(value)" } ?? value
        }
        return joined
    }

    private func isNamed(_ field: Field, _ name: StaticString, _ bytes: UnsafeRawBufferPointer) -> Bool {
        field.name.count == name.utf8CodeUnitCount && bytes[slice: field.name].equalsIgnoringCase(name)
    }
}

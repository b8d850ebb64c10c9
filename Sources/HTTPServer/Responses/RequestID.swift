/// What ties an answer, its log line and its caller's log line together: the client's `X-Request-Id` when it sent a
/// usable one, else one made here, unique to the process.
public enum RequestID: Sendable, CustomStringConvertible {
    case given(String)
    /// A number drawn when its event loop started, and a count.
    case generated(loop: UInt32, count: UInt64)

    /// A client's id is kept if it is 1 to 128 visible ASCII characters.
    init?(_ value: UnsafeRawBufferPointer) {
        guard (1...128).contains(value.count), value.allSatisfy(ByteClass.isVisible) else { return nil }
        self = .given(String(decoding: value, as: UTF8.self))
    }

    func append(to output: inout ByteBuffer) {
        switch self {
        case .given(let text):
            output.append(text)
        case .generated(let loop, let count):
            output.append(hexadecimal: UInt64(loop), width: 8)
            output.append(UInt8(ascii: "-"))
            output.append(hexadecimal: count)
        }
    }

    public var description: String {
        var buffer = ByteBuffer()
        append(to: &buffer)
        return buffer.withReadableBytes { String(decoding: $0, as: UTF8.self) }
    }
}

/// The id of a request, which the response and the log line carry, so that an operator can match them with the client's
/// log. It is the client's `X-Request-Id` if that is valid, or else an id that is unique within the process.
public enum RequestID: Sendable, CustomStringConvertible {
    /// The `X-Request-Id` of the client.
    case given(String)
    /// An id of the server.
    ///
    /// - Parameters:
    ///   - loop: a random number that the event loop has chosen at its start.
    ///   - count: the number of ids that the event loop has generated.
    case generated(loop: UInt32, count: UInt64)

    /// Accepts 1 to 128 visible ASCII characters.
    package init?(_ value: UnsafeRawBufferPointer) {
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

/// The position of a span in its trace, as the header field `traceparent` carries it from one program to the next (W3C
/// Trace Context).
public struct TraceContext: Sendable, Equatable {
    /// The two halves of the trace id.
    public let trace: (high: UInt64, low: UInt64)
    /// Identifies the span within its trace; never 0.
    public let spanID: UInt64
    /// Whether the spans of the trace are recorded.
    public let isSampled: Bool

    public init(trace: (high: UInt64, low: UInt64), spanID: UInt64, isSampled: Bool) {
        self.trace = trace
        self.spanID = spanID
        self.isSampled = isSampled
    }

    /// Parses a `traceparent` (W3C Trace Context §3.2), all of whose numbers are hexadecimal:
    ///
    ///     00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01
    ///     version, trace id, span id, flags
    ///
    /// A later version than 00 may append further fields after another hyphen.
    ///
    /// - Returns: `nil` if the standard requires servers to ignore the text. It must also be ignored if a request has
    ///   the header field several times, and its values are therefore joined in one text.
    public init?(traceparent text: String) {
        let bytes = Array(text.utf8)
        // The length of version 00. Its hyphens are at the positions 2, 35 and 52. The version 0xFF and ids of zeros
        // are invalid.
        let length = 55
        guard bytes.count >= length, [2, 35, 52].allSatisfy({ bytes[$0] == UInt8(ascii: "-") }),
            let version = Self.hexadecimal(bytes[0..<2]), version != 0xFF,
            bytes.count == length || version > 0 && bytes[length] == UInt8(ascii: "-"),
            let high = Self.hexadecimal(bytes[3..<19]), let low = Self.hexadecimal(bytes[19..<35]), high | low != 0,
            let span = Self.hexadecimal(bytes[36..<52]), span != 0,
            let flags = Self.hexadecimal(bytes[53..<55])
        else { return nil }
        // The lowest flag says that the caller records the trace.
        self.init(trace: (high, low), spanID: span, isSampled: flags & 1 == 1)
    }

    /// Parses up to 16 hexadecimal digits, in lower case only, as the standard requires.
    private static func hexadecimal(_ digits: ArraySlice<UInt8>) -> UInt64? {
        var value: UInt64 = 0
        for digit in digits {
            switch digit {
            case UInt8(ascii: "0")...UInt8(ascii: "9"): value = value << 4 | UInt64(digit - UInt8(ascii: "0"))
            case UInt8(ascii: "a")...UInt8(ascii: "f"): value = value << 4 | UInt64(digit - UInt8(ascii: "a") + 10)
            default: return nil
            }
        }
        return value
    }

    /// The trace id in the form that logs and collectors show: 32 hexadecimal digits.
    public var traceID: String { Self.text(trace.high) + Self.text(trace.low) }

    /// The header field for a request to another program.
    public var traceparent: String { "00-\(traceID)-\(Self.text(spanID))-0\(isSampled ? 1 : 0)" }

    /// Returns 16 hexadecimal digits.
    static func text(_ id: UInt64) -> String {
        let digits = String(id, radix: 16)
        return String(repeating: "0", count: 16 - digits.utf8.count) + digits
    }

    // Written out, because the compiler synthesizes no comparison for tuples.
    public static func == (left: TraceContext, right: TraceContext) -> Bool {
        left.trace == right.trace && left.spanID == right.spanID && left.isSampled == right.isSampled
    }
}

/// The position of a span in its trace, as in the field `traceparent` (W3C Trace Context).
public struct TraceContext: Sendable, Equatable {
    /// The two halves of the trace's id.
    public let trace: (high: UInt64, low: UInt64)
    public let spanID: UInt64
    /// Whether the spans of the trace are recorded.
    public let isSampled: Bool

    public init(trace: (high: UInt64, low: UInt64), spanID: UInt64, isSampled: Bool) {
        self.trace = trace
        self.spanID = spanID
        self.isSampled = isSampled
    }

    /// Reads a `traceparent` (W3C Trace Context §3.2). An unknown version may have further data behind another hyphen.
    ///
    /// - Returns: `nil` if the standard requires to ignore the text, also for several fields in one list.
    public init?(traceparent text: String) {
        let bytes = Array(text.utf8)
        guard bytes.count >= 55, [2, 35, 52].allSatisfy({ bytes[$0] == UInt8(ascii: "-") }),
            let version = Self.hexadecimal(bytes[0..<2]), version != 0xFF,
            bytes.count == 55 || version > 0 && bytes[55] == UInt8(ascii: "-"),
            let high = Self.hexadecimal(bytes[3..<19]), let low = Self.hexadecimal(bytes[19..<35]), high | low != 0,
            let span = Self.hexadecimal(bytes[36..<52]), span != 0,
            let flags = Self.hexadecimal(bytes[53..<55])
        else { return nil }
        self.init(trace: (high, low), spanID: span, isSampled: flags & 1 == 1)
    }

    /// Reads hexadecimal digits, in lower case only, as the standard requires.
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

    /// The trace's id in the form that logs and collectors show.
    public var traceID: String { Self.text(trace.high) + Self.text(trace.low) }

    public var traceparent: String { "00-\(traceID)-\(Self.text(spanID))-0\(isSampled ? 1 : 0)" }

    static func text(_ id: UInt64) -> String {
        let digits = String(id, radix: 16)
        return String(repeating: "0", count: 16 - digits.utf8.count) + digits
    }

    public static func == (left: TraceContext, right: TraceContext) -> Bool {
        left.trace == right.trace && left.spanID == right.spanID && left.isSampled == right.isSampled
    }
}

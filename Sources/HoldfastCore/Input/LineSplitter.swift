import Glibc

/// Splits a stream of bytes into numbered lines. The bytes may arrive in pieces of any size. Only an incomplete line at
/// the end of a piece is copied and kept.
public struct LineSplitter {
    /// The maximum length of a line in bytes; a longer one is reported as `nil`.
    public let limit: Int
    /// The number of the last line that was reported.
    public private(set) var number: Int
    /// The start of the current line, which continues in the next piece.
    private var partial: [UInt8] = []
    /// Whether the current line exceeds the limit, so that its bytes are dropped.
    private var isOverlong = false
    /// A buffer up to this capacity in bytes is kept for the next line; a larger one is released.
    private static let keptCapacity = 64 * 1024

    /// The number of bytes that are kept of the incomplete line.
    public var heldBytes: Int { partial.count }

    /// - Parameters:
    ///   - limit: the maximum length of a line in bytes.
    ///   - firstLine: the number of the first line.
    public init(limit: Int, firstLine: Int = 1) {
        self.limit = limit
        number = firstLine - 1
    }

    /// Appends bytes, and calls `line` for each complete line.
    ///
    /// - Parameter line: receives the number of a line, and the line without its line feed, or `nil` for a line over
    ///   the limit.
    public mutating func append(_ bytes: UnsafeRawBufferPointer, line: (Int, UnsafeRawBufferPointer?) -> Void) {
        var rest = bytes
        while let base = rest.baseAddress, let found = memchr(base, 0x0A, rest.count) {
            let length = UnsafeRawPointer(found) - base
            finish(UnsafeRawBufferPointer(rebasing: rest[..<length]), line)
            rest = UnsafeRawBufferPointer(rebasing: rest[(length + 1)...])
        }
        guard !rest.isEmpty else { return }
        isOverlong = isOverlong || partial.count + rest.count > limit
        if isOverlong { partial.removeAll() } else { partial += rest }
    }

    /// Ends the stream: the remaining bytes are the last line.
    public mutating func end(line: (Int, UnsafeRawBufferPointer?) -> Void) {
        if isOverlong || !partial.isEmpty { finish(UnsafeRawBufferPointer(start: nil, count: 0), line) }
    }

    /// Whether a line consists of white space.
    public static func isBlank(_ line: UnsafeRawBufferPointer) -> Bool {
        line.allSatisfy { $0 == 0x20 || $0 == 0x09 || $0 == 0x0D }
    }

    /// Whether a line contains `}` followed by `{`, as if the line feed between two objects were missing. Imports use
    /// this to explain an error in the first line. Strings are not parsed, so the result is also true for
    /// `{"a":"}{"}`.
    public static func holdsSeveralObjects(_ line: UnsafeRawBufferPointer) -> Bool {
        var last: UInt8 = 0
        for byte in line where byte != 0x20 && byte != 0x09 && byte != 0x0D {
            if byte == UInt8(ascii: "{"), last == UInt8(ascii: "}") { return true }
            last = byte
        }
        return false
    }

    /// Reports a line.
    ///
    /// - Parameter tail: the end of the line, after the bytes that are kept.
    private mutating func finish(_ tail: UnsafeRawBufferPointer, _ line: (Int, UnsafeRawBufferPointer?) -> Void) {
        defer {
            partial.removeAll(keepingCapacity: partial.capacity <= Self.keptCapacity)
            isOverlong = false
        }
        number += 1
        if isOverlong || partial.count + tail.count > limit { return line(number, nil) }
        if partial.isEmpty { return line(number, tail) }
        partial += tail
        partial.withUnsafeBytes { line(number, $0) }
    }
}

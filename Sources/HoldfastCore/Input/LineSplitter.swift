import Glibc

/// Cuts a stream of bytes into lines, whatever pieces it comes in.
public struct LineSplitter {
    /// Bytes of the longest line that is given out.
    public let limit: Int
    private var partial: [UInt8] = []
    /// Whether the line in progress is longer than the limit, so that its bytes are no longer kept.
    private var isOverlong = false

    /// Bytes of the line that has come in part.
    public var heldBytes: Int { partial.count }

    public init(limit: Int) {
        self.limit = limit
    }

    /// - Parameter line: called with each line that is complete, without its line feed; `nil` for one that is longer
    ///   than the limit.
    public mutating func append(_ bytes: UnsafeRawBufferPointer, line: (UnsafeRawBufferPointer?) -> Void) {
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

    /// The stream is over: what is left is the last line.
    public mutating func end(line: (UnsafeRawBufferPointer?) -> Void) {
        if isOverlong || !partial.isEmpty { finish(UnsafeRawBufferPointer(start: nil, count: 0), line) }
    }

    /// Whether a line has nothing but white space.
    public static func isBlank(_ line: UnsafeRawBufferPointer) -> Bool {
        line.allSatisfy { $0 == 0x20 || $0 == 0x09 || $0 == 0x0D }
    }

    /// Whether one object follows another, as where the line feed between them was lost. A text of a valid object may
    /// look so too.
    public static func holdsSeveralObjects(_ line: UnsafeRawBufferPointer) -> Bool {
        var last: UInt8 = 0
        for byte in line where byte != 0x20 && byte != 0x09 && byte != 0x0D {
            if byte == UInt8(ascii: "{"), last == UInt8(ascii: "}") { return true }
            last = byte
        }
        return false
    }

    private mutating func finish(_ tail: UnsafeRawBufferPointer, _ line: (UnsafeRawBufferPointer?) -> Void) {
        defer {
            partial.removeAll(keepingCapacity: partial.capacity <= 64 * 1024)
            isOverlong = false
        }
        if isOverlong || partial.count + tail.count > limit { return line(nil) }
        if partial.isEmpty { return line(tail) }
        partial += tail
        partial.withUnsafeBytes { line($0) }
    }
}

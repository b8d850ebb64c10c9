internal import CGzip

/// Compresses bytes as gzip does (RFC 1952), piece by piece.
public final class Gzip {
    /// The compression level of zlib, 1 to 9.
    public enum Level: Int32, Sendable {
        /// For bytes that are sent to one client.
        case fast = 1
        /// For bytes that are compressed once and sent to many clients.
        case small = 9
    }

    private let writer: OpaquePointer

    /// The result of `gzip_expand` if the output is longer than its buffer.
    private static let outputTooLong = -2
    /// The size in bytes of the buffer for compressed output, and the minimum for expanded output.
    private static let bufferSize = 16 * 1024
    /// The expected ratio of the expanded to the compressed length, by which the buffer also grows.
    private static let expansionFactor = 8

    /// - Returns: `nil` if there is no memory, or no zlib.
    public init?(_ level: Level) {
        guard let writer = gzip_open(level.rawValue) else { return nil }
        self.writer = writer
    }

    deinit {
        gzip_close(writer)
    }

    /// Compresses all bytes at once; `nil` if that does not make them shorter.
    public static func compress(_ bytes: [UInt8], _ level: Level) -> [UInt8]? {
        guard let compressed = Gzip(level)?.add(bytes, isLast: true), compressed.count < bytes.count else { return nil }
        return compressed
    }

    /// The result of ``expand(_:limit:)``.
    public enum Expansion: Equatable {
        case expanded([UInt8])
        case malformed
        case tooLong
        /// zlib is not installed.
        case unavailable
    }

    /// Expands a whole file of gzip. The length of the result is not known before, so the buffer grows until it is
    /// sufficient.
    ///
    /// - Parameter limit: the maximum length of the result, in bytes.
    public static func expand(_ bytes: UnsafeRawBufferPointer, limit: Int) -> Expansion {
        guard gzip_is_available() == 1 else { return .unavailable }
        guard let start = bytes.bindMemory(to: UInt8.self).baseAddress else { return .malformed }
        var capacity = min(limit, max(bufferSize, bytes.count * expansionFactor))
        while true {
            var length = 0
            let output = [UInt8](unsafeUninitializedCapacity: capacity) { output, count in
                length = gzip_expand(start, bytes.count, output.baseAddress, capacity)
                count = max(0, length)
            }
            if length >= 0 { return .expanded(output) }
            guard length == Self.outputTooLong else { return .malformed }
            guard capacity < limit else { return .tooLong }
            capacity = min(limit, capacity * expansionFactor)
        }
    }

    /// Adds a piece.
    ///
    /// - Parameter isLast: whether the output ends with it.
    /// - Returns: the next bytes of the output; often none, because small pieces are kept for later.
    public func add(_ bytes: [UInt8], isLast: Bool) -> [UInt8] {
        var output: [UInt8] = []
        bytes.withUnsafeBufferPointer { bytes in
            var taken = 0
            // A full buffer means that zlib has more output, even without further input.
            var isFull = true
            while taken < bytes.count || isFull {
                var length = bytes.count - taken
                let piece = [UInt8](unsafeUninitializedCapacity: Self.bufferSize) { piece, count in
                    count = gzip_write(
                        writer, bytes.baseAddress.map { $0 + taken }, &length, piece.baseAddress, Self.bufferSize,
                        isLast ? 1 : 0)
                }
                taken += length
                isFull = piece.count == Self.bufferSize
                output += piece
            }
        }
        return output
    }
}

@available(*, unavailable) extension Gzip: Sendable {}

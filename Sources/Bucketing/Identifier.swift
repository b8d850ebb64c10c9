public import JSON

/// The id or key of a user, an experiment, a variation, an attribute and so on, compared byte by byte.
///
/// Swift's `String` treats canonically equivalent texts as equal ("é" as one scalar or as two). Optimizely's SDKs and
/// all stores compare code points. A type of its own for all keys and ids makes it impossible to mix up the two.
public struct Identifier: Sendable {
    public let string: String

    @inlinable
    public init(_ string: String) {
        self.string = string
    }

    /// Whether the text consists of white space only. Optimizely's Python SDK buckets nobody into an experiment or
    /// holdout with such a key.
    var isBlank: Bool {
        string.allSatisfy(\.isWhitespace)
    }
}

extension Identifier: Hashable {
    @inlinable
    public static func == (left: Self, right: Self) -> Bool {
        left.string.hasSameBytes(as: right.string)
    }

    @inlinable
    public func hash(into hasher: inout Hasher) {
        var copy = string
        copy.withUTF8 { hasher.combine(bytes: UnsafeRawBufferPointer($0)) }
    }
}

extension Identifier: Comparable {
    /// The order of the UTF-8 bytes, like SQLite's `BINARY` collation.
    public static func < (left: Self, right: Self) -> Bool {
        var (left, right) = (left.string, right.string)
        return left.withUTF8 { left in
            right.withUTF8 { UnsafeRawBufferPointer(left).precedes(UnsafeRawBufferPointer($0)) }
        }
    }
}

extension Identifier: ExpressibleByStringLiteral, CustomStringConvertible {
    public init(stringLiteral value: String) {
        self.init(value)
    }

    public var description: String { string }
}

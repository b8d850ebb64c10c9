public import JSON

/// A text that names something (a user, an experiment, a variation, an attribute) and is compared byte by byte.
///
/// Swift's `String` holds canonically equivalent texts to be equal ("é" in one scalar or in two); the reference
/// SDK and every store compare code points. All keys and ids of the project are therefore `Identifier`s.
public struct Identifier: Sendable {
    public let string: String

    @inlinable
    public init(_ string: String) {
        self.string = string
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
    /// The order of the UTF-8 bytes, which is SQLite's `BINARY` collation.
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

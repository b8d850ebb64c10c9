/// The name of a remote value where it is kept.
///
/// Two keys are the same only if their UTF-8 bytes are; `String`'s `==` would also take other spellings of an accent.
public struct RemoteKey: Sendable, ExpressibleByStringLiteral, CustomStringConvertible {
    public let name: String

    public init(_ name: String) {
        self.name = name
    }

    public init(stringLiteral name: String) {
        self.name = name
    }

    public var description: String { name }
}

extension RemoteKey: Hashable {
    public static func == (left: RemoteKey, right: RemoteKey) -> Bool {
        left.name.utf8.elementsEqual(right.name.utf8)
    }

    public func hash(into hasher: inout Hasher) {
        var name = name
        name.withUTF8 { hasher.combine(bytes: UnsafeRawBufferPointer($0)) }
    }
}

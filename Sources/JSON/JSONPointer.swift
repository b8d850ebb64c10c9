/// The place of a value in a JSON text (RFC 6901): empty for the root, else `/member/0/…`.
public struct JSONPointer: Sendable, Hashable {
    public private(set) var string: String

    /// The root.
    public init() {
        string = ""
    }

    /// - Parameter string: the pointer as RFC 6901 writes it. It is not checked.
    public init(string: String) {
        self.string = string
    }

    public func appending(_ key: String) -> JSONPointer {
        JSONPointer(string: string + Self.token(key))
    }

    public func appending(_ index: Int) -> JSONPointer {
        JSONPointer(string: "\(string)/\(index)")
    }

    /// Returns the place to which `rest` points, starting at this place.
    public func appending(_ rest: JSONPointer) -> JSONPointer {
        JSONPointer(string: string + rest.string)
    }

    /// Returns this pointer, or the innermost enclosing one that fits into `limit` bytes.
    public func shortened(to limit: Int) -> JSONPointer {
        guard string.utf8.count > limit else { return self }
        // Cuts at a slash, because slashes within keys are escaped. The slash itself is cut off, so it may be the first
        // byte beyond the limit.
        let end = string.utf8.prefix(limit + 1).lastIndex(of: UInt8(ascii: "/")) ?? string.startIndex
        return JSONPointer(string: String(string[..<end]))
    }

    /// Makes this a pointer from the object that has the value under a key.
    mutating func prepend(_ key: String) {
        string = Self.token(key) + string
    }

    /// Makes this a pointer from the array that has the value at an index.
    mutating func prepend(_ index: Int) {
        string = "/\(index)\(string)"
    }

    /// Returns a key as a part of a pointer: `/` and the key, in which `~` is escaped as `~0` and `/` as `~1` (RFC 6901
    /// §3).
    private static func token(_ key: String) -> String {
        guard key.utf8.contains(where: { $0 == UInt8(ascii: "~") || $0 == UInt8(ascii: "/") }) else { return "/" + key }
        var token = "/"
        for scalar in key.unicodeScalars {
            switch scalar {
            case "~": token += "~0"
            case "/": token += "~1"
            default: token.unicodeScalars.append(scalar)
            }
        }
        return token
    }
}

extension JSONPointer: ExpressibleByArrayLiteral, CustomStringConvertible {
    public init(arrayLiteral elements: String...) {
        string = elements.map(Self.token).joined()
    }

    public var description: String { string }
}

/// A value in a JSON text that breaks a rule, such as a member with the wrong type. A text that is no JSON at all is a
/// ``JSONError``.
public struct JSONFault: Error, Sendable, Equatable {
    public var pointer: JSONPointer
    /// What is required and what was found.
    public var reason: String

    public init(pointer: JSONPointer, reason: String) {
        self.pointer = pointer
        self.reason = reason
    }
}

extension JSONFault: CustomStringConvertible {
    /// The reason and its place.
    public var description: String {
        pointer.string.isEmpty ? reason : "\(reason), at \(pointer)"
    }
}

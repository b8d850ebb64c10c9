/// Why a text is not JSON, and where.
public struct JSONError: Error, Sendable, Equatable {
    /// What was expected or is wrong, as a phrase.
    public var message: String
    /// The byte at which reading stopped, from 0.
    public var offset: Int
    /// The line of that byte, from 1; lines end with a line feed.
    public var line: Int
    /// The innermost value that was being read.
    public var pointer: JSONPointer

    init(_ message: String, offset: Int) {
        self.message = message
        self.offset = offset
        line = 1
        pointer = JSONPointer()
    }

    func inside(_ key: String) -> JSONError {
        var error = self
        error.pointer.prepend(key)
        return error
    }

    func inside(_ index: Int) -> JSONError {
        var error = self
        error.pointer.prepend(index)
        return error
    }
}

extension JSONError: CustomStringConvertible {
    public var description: String {
        let place = pointer.string.isEmpty ? "" : ", in \(pointer)"
        return "\(message) (line \(line), byte \(offset)\(place))"
    }
}

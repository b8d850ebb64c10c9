import Glibc

/// A system call that failed, and why.
public struct SystemError: Error, Sendable, CustomStringConvertible {
    /// The call's name, as in its manual page.
    public let call: String
    /// The value of `errno`.
    public let code: Int32

    public init(call: String, code: Int32) {
        self.call = call
        self.code = code
    }

    public var description: String {
        "\(call): \(String(cString: strerror(code)))"
    }
}

extension SystemError {
    /// Whether it concerns only the connection that was being accepted (accept(2), "Error handling").
    var isOfThePeer: Bool {
        switch code {
        case ECONNABORTED, EPROTO, EPERM, ENETDOWN, ENOPROTOOPT, EHOSTDOWN, ENONET, EHOSTUNREACH, EOPNOTSUPP,
            ENETUNREACH:
            true
        default: false
        }
    }
}

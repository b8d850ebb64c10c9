import Glibc

/// Runs system calls: retries interrupted ones, returns "would block" as a value, throws other errors, and traps on a
/// bad descriptor, which only a bug here can cause.
enum SystemCall {
    /// The outcome of a system call on a non-blocking descriptor.
    enum Outcome {
        /// The call has succeeded with this result, such as a number of bytes.
        case done(Int)
        /// The call could not be performed without blocking.
        case wouldBlock
    }

    /// Runs a call that may block, on a non-blocking descriptor.
    @inline(__always)
    static func attempt(_ name: StaticString, _ call: () -> Int) throws(SystemError) -> Outcome {
        while true {
            let result = call()
            if result >= 0 { return .done(result) }
            let code = errno
            if code == EINTR { continue }
            if code == EAGAIN || code == EWOULDBLOCK { return .wouldBlock }
            precondition(code != EBADF, "a closed descriptor was used")
            throw SystemError(call: name.description, code: code)
        }
    }

    /// Runs a call that either succeeds or fails.
    @discardableResult
    static func check(_ name: StaticString, _ call: () -> Int32) throws(SystemError) -> Int32 {
        switch try attempt(name, { Int(call()) }) {
        case .done(let result): return Int32(truncatingIfNeeded: result)
        case .wouldBlock: throw SystemError(call: name.description, code: EAGAIN)
        }
    }

    /// The monotonic clock in nanoseconds.
    @inline(__always)
    static func monotonicNanoseconds() -> UInt64 {
        var time = timespec()
        clock_gettime(CLOCK_MONOTONIC, &time)
        return UInt64(truncatingIfNeeded: time.tv_sec) &* 1_000_000_000 &+ UInt64(truncatingIfNeeded: time.tv_nsec)
    }
}

/// A failed system call.
public struct SystemError: Error, Sendable, CustomStringConvertible {
    /// The name of the call, as in its manual page.
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
    /// Whether an error of `accept` concerns only one connection, so that accepting may continue (accept(2)).
    var concernsOnlyThePeer: Bool {
        switch code {
        case ECONNABORTED, EPROTO, EPERM, ENETDOWN, ENOPROTOOPT, EHOSTDOWN, ENONET, EHOSTUNREACH, EOPNOTSUPP,
            ENETUNREACH:
            true
        default: false
        }
    }
}

/// What can go wrong between an app and Holdfast.
public enum HoldfastError: Error, Sendable, Equatable {
    /// A value of ``HoldfastConfiguration`` that cannot be used.
    case invalidConfiguration(String)
    /// A value that was given to a call and that the server would refuse.
    case invalidArgument(String)
    /// Another client, of this process or of another one, uses the directory.
    case directoryInUse(String)
    /// The directory cannot be read or written.
    case storage(String)
    /// There is no user yet: ``HoldfastClient/initialize(user:timeout:)`` has not been called.
    case notInitialized
    /// The client was destroyed.
    case destroyed
    /// The server did not answer in time.
    case timedOut
    /// The server cannot be reached, or the connection broke.
    case unreachable(String)
    /// The server refused the request (4xx): asking the same again does not help.
    ///
    /// - Parameter pointer: the member of the request that is wrong (RFC 6901), where the server says so.
    case refused(status: Int, detail: String, pointer: String? = nil)
    /// The server cannot answer now (5xx, 408, 425, 429).
    ///
    /// - Parameter retryAfter: when the server wants to be asked again, where it says so.
    case unavailable(status: Int, retryAfter: Duration?)
    /// The answer is not what Holdfast answers.
    case invalidAnswer(String)
    /// The task was cancelled.
    case cancelled
}

public import Foundation

/// Errors of the client library.
public enum HoldfastError: Error, Sendable, Equatable {
    /// A setting of ``HoldfastConfiguration`` is out of range.
    case invalidConfiguration(String)
    /// An argument that the server would refuse.
    case invalidArgument(String)
    /// Another client, in this or another process, uses the directory.
    case directoryInUse(String)
    /// The directory cannot be read or written, or the queue in it is full.
    case storage(String)
    /// ``HoldfastClient/shared`` exists already.
    case alreadyStarted
    /// There is no current user: ``HoldfastClient/initialize(user:timeout:)`` was not called.
    case notInitialized
    /// The client was destroyed.
    case destroyed
    /// The server did not respond in time.
    case timedOut
    /// The server cannot be reached, or the connection failed.
    case unreachable(String)
    /// The token is missing or unknown, or lacks the scope that the request requires (401, 403).
    case unauthorized(detail: String)
    /// The server has no project with the configured SDK key, or several projects and no SDK key is configured.
    case unknownProject(detail: String)
    /// The server refused the request (4xx). Repeating it does not help.
    ///
    /// - Parameter pointer: JSON pointer (RFC 6901) to the wrong member of the request, if the server names it.
    case refused(status: Int, detail: String, pointer: String? = nil)
    /// The server is temporarily unavailable (5xx, 408, 425, 429).
    ///
    /// - Parameter retryAfter: the delay that the server asks for; `nil` if it asks for none.
    case unavailable(status: Int, retryAfter: Duration?)
    /// The response is not a Holdfast response.
    case invalidResponse(String)
    /// The task was cancelled.
    case cancelled
}

extension HoldfastError: LocalizedError {
    /// The error in a sentence, for logs and developers; also `localizedDescription`.
    public var errorDescription: String? {
        switch self {
        case .invalidConfiguration(let detail), .invalidArgument(let detail), .storage(let detail): detail
        case .directoryInUse(let path):
            "another client uses \(path); give each its own HoldfastConfiguration.directory, or share one client"
        case .alreadyStarted: "HoldfastClient.shared exists already; destroy() ends it"
        case .notInitialized: "there is no current user; call start(user:) or initialize(user:) first"
        case .destroyed: "the client was destroyed"
        case .timedOut: "the server did not respond in time"
        case .unreachable(let detail): "the server cannot be reached: \(detail)"
        case .unauthorized(let detail): "the server does not accept the token: \(detail)"
        case .unknownProject(let detail): "the server does not have the project: \(detail)"
        case .refused(let status, let detail, let pointer):
            "the server refused the request (\(status)): \(detail)\(pointer.map { " (\($0))" } ?? "")"
        case .unavailable(let status, _): "the server is temporarily unavailable (\(status))"
        case .invalidResponse(let detail): "the response is not a Holdfast server's: \(detail)"
        case .cancelled: "the task was cancelled"
        }
    }
}

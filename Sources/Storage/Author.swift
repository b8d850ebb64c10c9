#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// Who makes a change, and by which request: what the audit log keeps of it beside the change itself.
public struct Author: Sendable, Hashable {
    /// The name of a token, or of what else acts, which then has two words, as no token's name has.
    public var name: String
    /// Empty when there is no request.
    public var requestID: String

    public init(name: String, requestID: String = "") {
        self.name = name
        self.requestID = requestID
    }

    /// Whoever asks a server that has no tokens. No token has this name.
    public static let anonymousName = "anonymous"

    /// The user that this process runs as: who starts it, or runs a command, acts in that name.
    public static let processUser: Author = {
        let identifier = geteuid()
        let name = getpwuid(identifier).map { String(cString: $0.pointee.pw_name) }
        return Author(name: "user \(name ?? String(identifier))")
    }()
}

import HTTPServer
internal import Synchronization

/// The tokens in force: with none everybody may do everything (and the server listens on loopback only). Event loops
/// ask through an ``AccessGate`` of their own.
public final class AccessControl: Sendable {
    private let current: Mutex<[Token]>
    /// Rises with each change, so that event loops need the lock only then.
    private let generation = Atomic<UInt64>(1)

    public init(tokens: [Token] = []) {
        current = Mutex(tokens)
    }

    /// Puts other tokens in force for requests from now on.
    ///
    /// - Returns: the former tokens.
    @discardableResult
    public func replaceTokens(_ tokens: [Token]) -> [Token] {
        let former = current.withLock { current in
            defer { current = tokens }
            return current
        }
        generation.add(1, ordering: .releasing)
        return former
    }

    /// What a caller sent, as it may stand in a log: without the secret of a token, which may stand where it does not
    /// belong.
    func loggable(_ text: String) -> String {
        let decoded = Array(text.utf8).withUnsafeBytes { PercentDecoding.decode($0) }
        let forms = [text, decoded ?? text]
        let isSecret = tokens.contains { token in forms.contains(where: token.isContained) }
        return isSecret ? "(hidden: it has the secret of a token in it)" : text
    }

    public var isOpen: Bool { tokens.isEmpty }

    var tokens: [Token] { current.withLock { $0 } }
    var currentGeneration: UInt64 { generation.load(ordering: .acquiring) }
}

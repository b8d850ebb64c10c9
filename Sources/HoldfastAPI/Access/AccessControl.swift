import HTTPServer
internal import Synchronization

/// The tokens in force: with none everybody may do everything (and the server listens on loopback only). Event loops
/// ask through an ``AccessGate`` of their own.
public final class AccessControl: Sendable {
    private let current: Mutex<[Token]>
    /// Rises with each change, so that event loops need the lock only then.
    private let generation = Atomic<UInt64>(1)
    private let observers = Mutex<[@Sendable () -> Void]>([])

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
        for replaced in observers.withLock({ $0 }) { replaced() }
        return former
    }

    /// Calls back whenever tokens have been replaced.
    func observe(_ replaced: @escaping @Sendable () -> Void) {
        observers.withLock { $0.append(replaced) }
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

/// What a request was admitted by, for a response that is still being sent when tokens are replaced.
struct Admission: Sendable {
    /// `nil` when none was asked for.
    let token: Token?
    let scope: APIRoute.Scope
    let control: AccessControl
    /// Of the tokens that it was found among.
    let generation: UInt64

    /// Whether the request would be admitted now.
    var isValid: Bool {
        guard control.currentGeneration != generation, case .token(let needed) = scope else { return true }
        guard let token else { return control.isOpen }
        return control.tokens.contains { $0.hasSecret(of: token) && $0.scope.allows(needed) }
    }
}

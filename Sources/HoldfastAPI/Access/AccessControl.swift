import HTTPServer
import Storage
internal import Synchronization

/// Holds the active tokens, and who signs people in. Without any, every caller has every scope, and the server listens on
/// loopback only. Each event loop reads them through its own ``AccessGate``.
public final class AccessControl: Sendable {
    private let current: Mutex<[Token]>
    private let provider: Mutex<IdentityProvider?>
    /// Incremented by each change, so that event loops take the lock only after one.
    private let generation = Atomic<UInt64>(1)
    private let observers = Mutex<[@Sendable () -> Void]>([])
    private let failure = Mutex<String?>(nil)
    /// Whether a change of running experiments needs a second person.
    let needsApproval: Bool

    /// - Parameter approvals: how many people a change of running experiments needs: 1 or 2.
    public init(tokens: [Token] = [], identity: IdentityProvider? = nil, approvals: Int = 1) {
        needsApproval = approvals > 1
        current = Mutex(tokens)
        provider = Mutex(identity)
    }

    /// Activates other keys and another map of scopes, for every request from now on.
    public func replaceIdentity(_ identity: IdentityProvider) {
        provider.withLock { $0 = identity }
        changed()
    }

    private func changed() {
        generation.add(1, ordering: .releasing)
        for replaced in observers.withLock({ $0 }) { replaced() }
    }

    /// Activates other tokens, for every request from now on.
    ///
    /// - Returns: the previous tokens.
    @discardableResult
    public func replaceTokens(_ tokens: [Token]) -> [Token] {
        let former = current.withLock { current in
            defer { current = tokens }
            return current
        }
        for token in tokens {
            if let same = former.first(where: token.hasSecret) { token.inheritUse(of: same) }
        }
        reloadFailure = nil
        changed()
        return former
    }

    /// Why the active tokens are not those of the file, without details; `nil` once they have been read.
    public var reloadFailure: String? {
        get { failure.withLock { $0 } }
        set { failure.withLock { $0 = newValue } }
    }

    /// Calls `replaced` after each replacement of the tokens.
    func observe(_ replaced: @escaping @Sendable () -> Void) {
        observers.withLock { $0.append(replaced) }
    }

    /// Returns a caller's text for the log, or a placeholder if it contains a token's secret: callers sometimes send
    /// the secret in the wrong place, such as the URL.
    func loggable(_ text: String) -> String {
        let decoded = Array(text.utf8).withUnsafeBytes { PercentDecoding.decode($0) }
        let forms = [text, decoded ?? text]
        let isSecret =
            tokens.contains { token in forms.contains(where: token.isContained) }
            || identity != nil && forms.contains { $0.contains("eyJ") }
        return isSecret ? "(hidden: it contains the secret of a token)" : text
    }

    /// Whether there are no tokens and nobody signs people in, so that every caller has every scope.
    public var isOpen: Bool { tokens.isEmpty && identity == nil }

    var identity: IdentityProvider? { provider.withLock { $0 } }

    var tokens: [Token] { current.withLock { $0 } }
    var currentGeneration: UInt64 { generation.load(ordering: .acquiring) }
}

/// The token that admitted a request. A response that is still being sent when tokens are replaced checks it again.
struct Admission: Sendable {
    /// `nil` if the route or the server requires none.
    let token: Token?
    let scope: APIRoute.Scope
    let control: AccessControl
    /// The generation of the tokens that were searched.
    let generation: UInt64
    /// What the request carries out, once the caller has approved it.
    let approval: Approval?

    /// Whether the request would still be admitted.
    var isValid: Bool {
        if let token, token.hasExpired { return false }
        guard control.currentGeneration != generation, scope != .none else { return true }
        guard let token else { return control.isOpen }
        if let person = token.person { return control.identity?.admits(person) ?? false }
        if let edge = token.edge {
            return control.tokens.contains { $0.hasSecret(of: edge) && $0.scope == .edge }
        }
        return control.tokens.contains {
            $0.hasSecret(of: token) && $0.projects == token.projects && scope.admits($0)
        }
    }
}

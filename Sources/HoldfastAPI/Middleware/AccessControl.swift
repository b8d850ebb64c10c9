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
    public func replaceTokens(_ tokens: [Token]) {
        current.withLock { $0 = tokens }
        generation.add(1, ordering: .releasing)
    }

    public var isOpen: Bool { tokens.isEmpty }

    var tokens: [Token] { current.withLock { $0 } }
    var currentGeneration: UInt64 { generation.load(ordering: .acquiring) }
}

public import Storage
public import Testing

/// What every ``ProfileStore`` must do: run each of the cases against a store that is new and empty.
public struct ProfileStoreContract: Sendable, CustomTestStringConvertible {
    /// Makes a store that is new and empty.
    public typealias Factory = (ProfileRules, @escaping WallClock) throws -> any ProfileStore

    /// What a case works with.
    struct Context {
        let store: any ProfileStore
        let reader: any ProfileReader
        let clock: ManualClock
    }

    public let testDescription: String
    let rules: ProfileRules
    let body: @Sendable (Context) async throws -> Void

    init(
        _ fact: String, rules: ProfileRules = ProfileRules(), body: @escaping @Sendable (Context) async throws -> Void
    ) {
        testDescription = fact
        self.rules = rules
        self.body = body
    }

    public static let cases = saving + overriding + assigning + erasing + expiring + reading + failing

    public func run(_ make: Factory) async throws {
        let clock = ManualClock()
        let store = try make(rules, clock.wallClock)
        defer { store.close() }
        let reader = try store.makeReader()
        defer { reader.close() }
        try await body(Context(store: store, reader: reader, clock: clock))
    }
}

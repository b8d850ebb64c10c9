public import Storage
public import Testing

/// What every store must do: run each of the cases against a store that is new and empty.
public struct StoreContract: Sendable, CustomTestStringConvertible {
    /// How a case wants its store.
    public struct Options: Sendable {
        public var rules = ProfileRules()
        public var datafileHistory = 100
        public var waitingBytes = StoreSettings().waitingBytes
        public var clock = ManualClock()
    }

    /// Makes a store that is new and empty.
    public typealias Factory = (Options) throws -> any Store

    /// What a case works with.
    struct Context {
        let store: any Store
        let reader: WaitingReader
        let clock: ManualClock
    }

    public let testDescription: String
    /// Made for each run: copies of rules share what they know of the definitions.
    private let rules: @Sendable () -> ProfileRules
    private let datafileHistory: Int
    private let waitingBytes: Int
    private let body: @Sendable (Context) async throws -> Void

    init(
        _ fact: String, rules: @autoclosure @escaping @Sendable () -> ProfileRules = ProfileRules(),
        datafileHistory: Int = 100,
        waitingBytes: Int = StoreSettings().waitingBytes,
        body: @escaping @Sendable (Context) async throws -> Void
    ) {
        testDescription = fact
        self.rules = rules
        self.datafileHistory = datafileHistory
        self.waitingBytes = waitingBytes
        self.body = body
    }

    /// The cases of all facets.
    public static let all =
        profiles + merging + removals + stickyDocuments + attributes + events + series + breakdowns + projects + audit
        + feed + webhooks

    /// The cases of all facets, and of stores in which changes wait for a commit.
    public static let databases = all + waiting

    public static let profiles =
        saving + overriding + restoring + assigning + enrolling + erasing + expiring + reading + failing

    public func run(_ make: Factory) async throws {
        let clock = ManualClock()
        let options = Options(
            rules: rules(), datafileHistory: datafileHistory, waitingBytes: waitingBytes, clock: clock)
        let store = try make(options)
        defer { store.close() }
        let reader = try store.makeReader()
        defer { reader.close() }
        try await body(Context(store: store, reader: reader, clock: clock))
    }
}

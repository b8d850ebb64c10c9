public import Bucketing
import Dispatch
public import Storage
public import Testing

/// A store of all facets.
public typealias WholeStore = ProfileStore & AttributeStore & EventStore & ProjectStore & AuditStore

/// What every store must do: run each of the cases against a store that is new and empty.
public struct StoreContract: Sendable, CustomTestStringConvertible {
    /// How a case wants its store.
    public struct Options: Sendable {
        public var rules = ProfileRules()
        public var datafileHistory = 100
        public var clock = ManualClock()
    }

    /// Makes a store that is new and empty.
    public typealias Factory = (Options) throws -> any WholeStore

    /// What a case works with.
    struct Context {
        let store: any WholeStore
        let reader: any UserReader
        let clock: ManualClock
    }

    public let testDescription: String
    private let rules: ProfileRules
    private let datafileHistory: Int
    private let body: @Sendable (Context) async throws -> Void

    init(
        _ fact: String, rules: ProfileRules = ProfileRules(), datafileHistory: Int = 100,
        body: @escaping @Sendable (Context) async throws -> Void
    ) {
        testDescription = fact
        self.rules = rules
        self.datafileHistory = datafileHistory
        self.body = body
    }

    public static let profiles = saving + overriding + assigning + erasing + expiring + reading + failing

    public func run(_ make: Factory) async throws {
        let clock = ManualClock()
        let store = try make(Options(rules: rules, datafileHistory: datafileHistory, clock: clock))
        defer { store.close() }
        let reader = try store.makeUserReader()
        defer { reader.close() }
        try await body(Context(store: store, reader: reader, clock: clock))
    }
}

extension EventStore {
    /// Records events that were received at a time, by default now, and waits until they are durable.
    public func record(
        _ events: [UserEvent], receivedAt: UInt64? = nil
    ) async throws -> [EventOutcome] {
        let receivedAt = receivedAt ?? DispatchTime.now().uptimeNanoseconds
        let received = events.map { ReceivedEvent($0, receivedAt: receivedAt) }
        return try await withCheckedContinuation { continuation in
            record(received) { continuation.resume(returning: $0) }
        }.get()
    }
}

extension ProjectStore {
    /// Activates a datafile whose content is its revision, and waits until it is durable.
    public func activate(
        _ content: String, sdkKey: String = "key", revision: String? = nil, replacing: Int64? = nil,
        by author: Author = Author(name: "test")
    ) async throws -> StoredDatafile? {
        try await withCheckedContinuation { continuation in
            putDatafile(
                Array(content.utf8), sdkKey: sdkKey, revision: revision ?? content, replacing: replacing,
                note: AuditNote(.datafilePut, of: sdkKey), by: author
            ) { continuation.resume(returning: $0) }
        }.get()
    }

    /// Forces a variation on a user, or with `nil` removes it, and waits until that is durable.
    @discardableResult
    public func force(
        _ variationKey: Identifier?, experimentKey: Identifier = "e", userID: Identifier = "user", sdkKey: String = "key",
        by author: Author = Author(name: "test")
    ) async throws -> Identifier? {
        try await withCheckedContinuation { continuation in
            setForcedVariation(variationKey, experimentKey: experimentKey, userID: userID, sdkKey: sdkKey, by: author) {
                continuation.resume(returning: $0)
            }
        }.get()
    }
}

extension AuditStore {
    /// Applies an admin's change and waits until it is durable.
    public func administer(
        _ operation: ProfileChange.Operation, of userID: Identifier, by author: Author
    ) async throws {
        _ = try await withCheckedContinuation { continuation in
            submit(ProfileChange(userID: userID, operation: operation), by: author) { continuation.resume(returning: $0) }
        }.get()
    }

    /// Records a note and waits until it is durable.
    public func record(_ note: AuditNote, by author: Author) async throws {
        try await withCheckedContinuation { continuation in
            record(note, by: author) { continuation.resume(returning: $0) }
        }.get()
    }

    /// Finds entries of the audit log.
    public func audit(_ adjust: (inout AuditQuery) -> Void = { _ in }) async throws -> [AuditEntry] {
        var query = AuditQuery(limit: 1_000)
        adjust(&query)
        return try await withCheckedContinuation { continuation in
            auditEntries(query) { continuation.resume(returning: $0) }
        }.get()
    }
}

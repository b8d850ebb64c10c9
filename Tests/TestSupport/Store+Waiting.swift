public import Bucketing
public import Chronology
import Dispatch
import JSON
public import Storage
import Synchronization

/// Operations of a store that are waited for, each through a session of its own.
extension Store {
    /// Runs an operation and waits for its result.
    public func perform<Value: Sendable>(
        _ operation: @escaping @Sendable (any StoreSession, @escaping Completion<Value>) -> Void
    ) async throws -> Value {
        let session = try SessionPool.take(self)
        defer { SessionPool.giveBack(session, of: self) }
        return try await withCheckedContinuation { continuation in
            session.run { stored in operation(stored) { continuation.resume(returning: $0) } }
        }.get()
    }

    /// Runs a read and blocks until its result is there.
    public func read<Value: Sendable>(
        _ operation: @escaping @Sendable (any StoreSession, @escaping Completion<Value>) -> Void
    ) throws(StorageError) -> Value {
        let session = try SessionPool.take(self)
        defer { SessionPool.giveBack(session, of: self) }
        return try session.wait(operation)
    }

    /// Reads and blocks until the result is there.
    public func read<Value>(_ query: StoreQuery<Value>) throws(StorageError) -> Value {
        try read { $0.read(query, $1) }
    }

    /// Makes a change and waits for its result.
    public func write<Value>(_ change: UserChange<Value>) async throws -> Value {
        try await perform { $0.write(change, $1) }
    }

    /// Makes a change and waits for its result.
    public func write<Value>(_ change: SharedChange<Value>) async throws -> Value {
        try await perform { $0.write(change, $1) }
    }

    /// A session whose reads are waited for.
    public func makeReader() throws(StorageError) -> WaitingReader {
        try WaitingReader(self)
    }

    // MARK: Profiles

    @discardableResult
    public func apply(_ operation: ProfileChange.Operation, to userID: Identifier) async throws -> ProfileChangeResult {
        try await perform { $0.submit(ProfileChange(userID: userID, operation: operation), $1) }
    }

    /// Applies an admin's change.
    @discardableResult
    public func administer(
        _ operation: ProfileChange.Operation, of userID: Identifier, by author: Author
    ) async throws -> ProfileChangeResult {
        try await perform { $0.submit(ProfileChange(userID: userID, operation: operation), by: author, $1) }
    }

    /// Merges an anonymous user into an account.
    @discardableResult
    public func merge(
        _ anonymousID: Identifier, into userID: Identifier, _ rule: ProfileChange.ConflictRule = .keep,
        by author: Author = Author(name: "test")
    ) async throws -> ProfileMergeResult {
        let merge = ProfileMerge(userID: userID, anonymousID: anonymousID, conflictRule: rule)
        return try await write(.merge(merge, by: author))
    }

    /// Applies changes that are all submitted before the first is waited for; returns their results in order.
    public func applyTogether(_ changes: [ProfileChange]) async -> [Result<ProfileChangeResult, StorageError>] {
        await submitTogether(changes).results()
    }

    /// Submits changes, whose results can be waited for later.
    public func submitTogether(_ changes: [ProfileChange]) -> SubmittedChanges {
        let channels = changes.map { _ in AsyncStream<Result<ProfileChangeResult, StorageError>>.makeStream() }
        let streams = channels.map(\.stream)
        let continuations = channels.map(\.continuation)
        do throws(StorageError) {
            let session = try SessionPool.take(self)
            let isSubmitted = DispatchSemaphore(value: 0)
            session.run { session in
                for (change, continuation) in zip(changes, continuations) {
                    session.submit(change) { result in
                        continuation.yield(result)
                        continuation.finish()
                    }
                }
                isSubmitted.signal()
            }
            isSubmitted.wait()
            SessionPool.giveBack(session, of: self)
        } catch {
            for continuation in continuations {
                continuation.yield(.failure(error))
                continuation.finish()
            }
        }
        return SubmittedChanges(streams: streams)
    }

    /// Submits changes as one.
    public func applyAsOne(_ changes: [ProfileChange]) async -> [Result<ProfileChangeResult, StorageError>] {
        do {
            return try await perform { session, done in session.submit(changes, by: nil) { done(.success($0)) } }
        } catch {
            return changes.map { _ in .failure(error as? StorageError ?? .closed) }
        }
    }

    // MARK: Attributes

    /// - Returns: the numbers of the attributes that changed; `nil` if the schema has.
    @discardableResult
    public func update(_ updates: [UInt32: AttributeUpdate], of userID: Identifier) async throws -> [UInt32]? {
        try await apply(AttributeChange(userID: userID, operation: .update(updates)))
    }

    @discardableResult
    public func apply(_ change: AttributeChange) async throws -> [UInt32]? {
        let result = try await perform { $0.write(.attributes(change), $1) }
        return if case .applied(let changed) = result { changed } else { nil }
    }

    public func applyAsOne(_ changes: [AttributeChange]) async throws -> [Result<AttributeChangeResult, StorageError>] {
        try await perform { session, done in session.write(changes.map { .attributes($0) }) { done(.success($0)) } }
    }

    @discardableResult
    public func define(_ definition: AttributeDefinition) async throws -> AttributeDefinitionResult {
        try await write(.putAttribute(definition, by: .processUser))
    }

    @discardableResult
    public func removeDefinition(_ name: Identifier) async throws -> Bool {
        try await write(.removeAttribute(name, by: .processUser))
    }

    public func put(_ segment: Segment) async throws -> Bool {
        try await write(.putSegment(segment, by: .processUser))
    }

    public func removeSegment(_ name: Identifier) async throws -> Bool {
        try await write(.removeSegment(name, by: .processUser))
    }

    /// One scan of the users.
    public func page(_ matcher: SegmentMatcher, _ scope: SegmentScan) async throws -> SegmentPage {
        try await perform { $0.read(.users(matcher, scope), $1) }
    }

    public func attributeSchema() throws(StorageError) -> AttributeSchema {
        try projects()?.schema ?? .empty
    }

    // MARK: Events

    /// Records events that were received at a time, by default now.
    public func record(_ events: [UserEvent], receivedAt: UInt64? = nil) async throws -> [EventOutcome] {
        let receivedAt = receivedAt ?? DispatchTime.now().uptimeNanoseconds
        return try await perform { $0.record(events.map { ReceivedEvent($0, receivedAt: receivedAt) }, $1) }
    }

    public func exposures(after number: Int64, limit: Int) throws(StorageError) -> [StoredExposure] {
        try read(.exposures(after: number, limit: limit))
    }

    public func goalEvents(after number: Int64, limit: Int) throws(StorageError) -> [StoredGoalEvent] {
        try read(.goalEvents(after: number, limit: limit))
    }

    public func exposures(
        of userID: Identifier, before number: Int64 = .max, limit: Int
    ) throws(StorageError) -> [StoredExposure] {
        try read(.exposures(of: userID, before: number, limit: limit))
    }

    public func goalEvents(
        of userID: Identifier, before number: Int64 = .max, limit: Int
    ) throws(StorageError) -> [StoredGoalEvent] {
        try read(.goalEvents(of: userID, before: number, limit: limit))
    }

    public func tallies(experimentID: Identifier, goal: Identifier) throws(StorageError) -> [VariationTally] {
        try tally(experimentID: experimentID, goal: goal).variations
    }

    public func tally(experimentID: Identifier, goal: Identifier) throws(StorageError) -> ExperimentTally {
        try read(.tally(experimentID: experimentID, goal: goal))
    }

    public func goals(experimentID: Identifier, limit: Int) throws(StorageError) -> [Identifier] {
        try read(.goals(experimentID: experimentID, limit: limit))
    }

    // MARK: Projects

    /// - Returns: `nil` if nothing has changed.
    public func projects(
        ifChangedSince changes: Int64 = -1, datafilesAfter version: Int64 = 0
    ) throws(StorageError) -> ProjectState? {
        try read(.projects(ifChangedSince: changes, datafilesAfter: version))
    }

    public func removals(after time: Int64) throws(StorageError) -> [UserRemoval] {
        try read(.removals(after: time))
    }

    public func projectChanges() throws(StorageError) -> Int64 {
        try projects()?.changes ?? -1
    }

    public func datafiles(after version: Int64) throws(StorageError) -> [StoredDatafile] {
        try projects(datafilesAfter: version)?.datafiles ?? []
    }

    public func forcedVariations() throws(StorageError) -> [ForcedVariation] {
        try projects()?.forcedVariations ?? []
    }

    public func datafileHistory(sdkKey: String, limit: Int) throws(StorageError) -> [StoredDatafile] {
        try read(.datafileHistory(sdkKey: sdkKey, limit: limit))
    }

    public func datafile(sdkKey: String, activeAt time: Instant) throws(StorageError) -> StoredDatafile? {
        try read(.datafile(sdkKey: sdkKey, activeAt: time))
    }

    public func datafile(sdkKey: String, version: Int64) throws(StorageError) -> StoredDatafile? {
        try read(.datafile(sdkKey: sdkKey, version: version))
    }

    public func lastDatafile(sdkKey: String, by author: Author) throws(StorageError) -> StoredDatafile? {
        try read(.lastDatafile(sdkKey: sdkKey, by: author))
    }

    /// Activates a datafile whose content is its revision.
    public func activate(
        _ content: String, sdkKey: String = "key", revision: String? = nil, replacing: Int64? = nil,
        among newest: Int64? = nil, freezing: [ResultsFreeze] = [], makesProject: Bool = true,
        by author: Author = Author(name: "test"),
        series: [Identifier: [SeriesDefinition]] = [:], schema: SchemaChange = SchemaChange(),
        approval: Approval? = nil
    ) async throws -> StoredDatafile? {
        try await write(
            .putDatafile(
                .whole(Array(content.utf8)), sdkKey: sdkKey, revision: revision ?? content,
                allocations: AllocationRules.allocations(inContent: Array(content.utf8)),
                statuses: StatusRules.statuses(inContent: Array(content.utf8)), series: series,
                replacing: replacing, among: newest, freezing: freezing, makesProject: makesProject, schema: schema,
                approval: approval, notes: [AuditNote(.datafilePut, of: sdkKey)], by: author))
    }

    /// Activates a datafile that an edit has made.
    public func activate(
        _ parts: DatafileParts, _ change: DatafileParts.Change, sdkKey: String = "key", replacing: Int64
    ) async throws -> StoredDatafile? {
        try await write(
            .putDatafile(
                .edit(parts, change), sdkKey: sdkKey, revision: "edit", allocations: [:], statuses: [:],
                replacing: replacing, makesProject: true, notes: [AuditNote(.experimentPut, of: sdkKey)],
                by: Author(name: "test")))
    }

    @discardableResult
    public func putProject(
        _ sdkKey: String, name: String? = nil, becomesDefault: Bool = false
    ) async throws -> ProjectSettingsResult {
        let change = ProjectSettings(sdkKey: sdkKey, name: name, becomesDefault: becomesDefault)
        return try await write(.putProject(change, datafile: Array("empty".utf8), by: Author(name: "test")))
    }

    public func removeProject(_ sdkKey: String, expecting version: Int64) async throws -> ProjectRemovalResult {
        try await write(.removeProject(sdkKey: sdkKey, expecting: version, by: Author(name: "test")))
    }

    /// The projects, the default one marked by `*`.
    public func projectNames() throws(StorageError) -> [String] {
        try projects()?.projects.map { $0.sdkKey + ($0.isDefault ? "*" : "") } ?? []
    }

    /// Forces a variation on a user, or with `nil` removes it.
    @discardableResult
    public func force(
        _ variationKey: Identifier?, experimentKey: Identifier = "e", userID: Identifier = "user",
        sdkKey: String = "key",
        by author: Author = Author(name: "test")
    ) async throws -> Identifier? {
        try await write(
            .forceVariation(
                variationKey, experimentKey: experimentKey, userID: userID, sdkKey: sdkKey, by: author))
    }

    // MARK: The audit log

    public func record(_ note: AuditNote, by author: Author) async throws {
        try await write(.record(note, by: author))
    }

    /// Finds entries of the audit log.
    public func audit(_ adjust: (inout AuditQuery) -> Void = { _ in }) async throws -> [AuditEntry] {
        var query = AuditQuery(limit: 1_000)
        adjust(&query)
        return try await perform { [query] in $0.read(.auditEntries(query), $1) }
    }
}

/// Changes that are under way.
public struct SubmittedChanges: Sendable {
    let streams: [AsyncStream<Result<ProfileChangeResult, StorageError>>]

    /// Waits for all of them; in the order in which they were submitted.
    public func results() async -> [Result<ProfileChangeResult, StorageError>] {
        var results: [Result<ProfileChangeResult, StorageError>] = []
        for stream in streams {
            for await result in stream {
                results.append(result)
            }
        }
        return results
    }
}

/// Looks users up and waits for the results, each in a batch of its own.
public final class WaitingReader: Sendable {
    private let session: BackgroundSession

    init(_ store: any Store) throws(StorageError) {
        session = try BackgroundSession(store, label: "test-reader")
    }

    public func profile(of userID: Identifier) throws(StorageError) -> ProfileRecord? {
        try inBatch { $0.profile(of: userID, $1) }
    }

    public func attributes(of userID: Identifier) throws(StorageError) -> AttributeRecord? {
        try inBatch { $0.attributes(of: userID, $1) }
    }

    public func stickyDocuments(_ keys: [StickyDocumentKey]) throws(StorageError) -> [StickyDocument?] {
        try inBatch { $0.read(.stickyDocuments(keys), $1) }
    }

    /// The variations of a user by experiment; `nil` if there is no profile.
    public func variations(of userID: Identifier) throws(StorageError) -> [Identifier: Identifier]? {
        try profile(of: userID).map(\.variations)
    }

    /// So many profiles after a user, of as many pages as it takes.
    public func page(
        after: Identifier?, limit: Int
    ) throws(StorageError) -> [(userID: Identifier, profile: ProfileRecord)] {
        var found: [(userID: Identifier, profile: ProfileRecord)] = []
        var end = after
        repeat {
            let (first, count) = (end, limit - found.count)
            let page = try inBatch { $0.read(.profiles(after: first, limit: count), $1) }
            found += page.profiles
            end = page.end
        } while end != nil && found.count < limit
        return found
    }

    private func inBatch<Value: Sendable>(
        _ operation: @escaping @Sendable (any StoreSession, @escaping Completion<Value>) -> Void
    ) throws(StorageError) -> Value {
        try session.wait { session, done in
            session.beginBatch()
            operation(session, done)
            session.endBatch()
        }
    }

    public func close() {
        session.close()
    }
}

extension ProfileRecord {
    /// The variations by experiment.
    public var variations: [Identifier: Identifier] {
        Dictionary(uniqueKeysWithValues: entries.map { (experimentID(of: $0), variationID(of: $0)) })
    }
}

/// Sessions that operations of a test use one after the other. Without a pool each operation makes a session of its own,
/// which for a store behind a network means to connect.
public final class SessionPool: Sendable {
    @TaskLocal private static var current: SessionPool?
    private let idle = Mutex<[ObjectIdentifier: [BackgroundSession]]>([:])

    /// Runs `body` with a pool.
    public static func with<Result>(_ body: () async throws -> Result) async rethrows -> Result {
        let pool = SessionPool()
        defer { pool.close() }
        return try await $current.withValue(pool, operation: body)
    }

    static func take(_ store: any Store) throws(StorageError) -> BackgroundSession {
        if let current, let idle = current.idle.withLock({ $0[ObjectIdentifier(store)]?.popLast() }) { return idle }
        return try BackgroundSession(store, label: "test")
    }

    static func giveBack(_ session: BackgroundSession, of store: any Store) {
        guard let current else { return session.close() }
        current.idle.withLock { $0[ObjectIdentifier(store), default: []].append(session) }
    }

    private func close() {
        for session in idle.withLock({ $0.values.joined() }) { session.close() }
    }
}

extension AllocationRules {
    /// Returns the allocations of a datafile as it is stored; none if it is not usable.
    public static func allocations(inContent content: [UInt8]) -> [Identifier: TrafficAllocation] {
        Datafile(content: content).map { allocations(in: $0) } ?? [:]
    }
}

extension StatusRules {
    /// Those of content that may be no datafile, which has none.
    public static func statuses(inContent content: [UInt8]) -> [Identifier: String] {
        Datafile(content: content).map { statuses(in: $0) } ?? [:]
    }
}

extension Datafile {
    /// - Returns: `nil` if the content is no datafile.
    fileprivate convenience init?(content: [UInt8]) {
        guard let json = try? JSONParser(maximumDepth: 128).parse(content) else { return nil }
        try? self.init(json)
    }
}

import Bucketing

/// Wraps a store and fails each change with ``StorageError/readOnly``, while the content of the store is copied to
/// another one.
public final class ReadOnlyStore: Store {
    private let base: any Store
    private let probing: BackgroundSession

    /// - Throws: ``StorageError/unavailable(reason:)``, ``StorageError/closed``
    public init(_ base: any Store) throws(StorageError) {
        self.base = base
        probing = try BackgroundSession(base, label: "read-only-probe")
    }

    public func makeSession(on executor: any StoreExecutor) throws(StorageError) -> sending any StoreSession {
        ReadOnlySession(try base.makeSession(on: executor))
    }

    /// Probes with a read instead of a write.
    public func probe(_ completion: @escaping @Sendable (Result<Void, StorageError>) -> Void) {
        probing.run { session in
            session.datafileHistory(sdkKey: "", limit: 1) { completion($0.map { _ in }) }
        }
    }

    public func probeReads(_ completion: @escaping @Sendable (Result<Void, StorageError>) -> Void) {
        base.probeReads(completion)
    }

    public var readFailure: StorageError? { base.readFailure }

    public var rules: ProfileRules { base.rules }

    public var clock: StoreClock { base.clock }

    public func watchProjects(_ changed: @escaping @Sendable () -> Void) -> (any ProjectWatch)? {
        base.watchProjects(changed)
    }

    public func metrics() -> StoreMetrics { base.metrics() }

    public func close() {
        probing.close()
        base.close()
    }
}

private final class ReadOnlySession: StoreSession {
    private let base: any StoreSession

    init(_ base: sending any StoreSession) {
        self.base = base
    }

    func prepareLookups() throws(StorageError) { try base.prepareLookups() }
    func beginBatch() { base.beginBatch() }
    func endBatch() { base.endBatch() }
    var cacheMetrics: CacheMetrics { base.cacheMetrics }
    func close() { base.close() }

    // MARK: Profiles

    func profile(of userID: Identifier, _ completion: @escaping Completion<ProfileRecord?>) {
        base.profile(of: userID, completion)
    }

    func records(of userID: Identifier, _ completion: @escaping Completion<UserRecords>) {
        base.records(of: userID, completion)
    }

    func profiles(after: Identifier?, limit: Int, _ completion: @escaping Completion<ProfilePage>) {
        base.profiles(after: after, limit: limit, completion)
    }

    func submit(
        _ change: ProfileChange, by author: Author?, _ completion: @escaping Completion<ProfileChangeResult>
    ) {
        completion(.failure(.readOnly))
    }

    func merge(_ merge: ProfileMerge, by author: Author, _ completion: @escaping Completion<ProfileMergeResult>) {
        completion(.failure(.readOnly))
    }

    func submit(
        _ changes: [ProfileChange], by author: Author?,
        _ completion: @escaping ([Result<ProfileChangeResult, StorageError>]) -> Void
    ) {
        completion(changes.map { _ in .failure(.readOnly) })
    }

    // MARK: Attributes and segments

    func attributes(of userID: Identifier, _ completion: @escaping Completion<AttributeRecord?>) {
        base.attributes(of: userID, completion)
    }

    func submit(_ change: AttributeChange, _ completion: @escaping Completion<AttributeChangeResult>) {
        completion(.failure(.readOnly))
    }

    func submit(
        _ changes: [AttributeChange], _ completion: @escaping ([Result<AttributeChangeResult, StorageError>]) -> Void
    ) {
        completion(changes.map { _ in .failure(.readOnly) })
    }

    func putAttribute(
        _ definition: AttributeDefinition, by author: Author,
        _ completion: @escaping Completion<AttributeDefinitionResult>
    ) {
        completion(.failure(.readOnly))
    }

    func removeAttribute(_ name: Identifier, by author: Author, _ completion: @escaping Completion<Bool>) {
        completion(.failure(.readOnly))
    }

    func putSegment(_ segment: Segment, by author: Author, _ completion: @escaping Completion<Bool>) {
        completion(.failure(.readOnly))
    }

    func removeSegment(_ name: Identifier, by author: Author, _ completion: @escaping Completion<Bool>) {
        completion(.failure(.readOnly))
    }

    func scan(_ matcher: SegmentMatcher, _ scope: SegmentScan, _ completion: @escaping Completion<SegmentPage>) {
        base.scan(matcher, scope, completion)
    }

    // MARK: Sticky documents

    func stickyDocuments(_ keys: [StickyDocumentKey], _ completion: @escaping Completion<[StickyDocument?]>) {
        base.stickyDocuments(keys, completion)
    }

    func submit(_ change: StickyDocumentChange, _ completion: @escaping Completion<StickyDocument>) {
        completion(.failure(.readOnly))
    }

    func removeStickyDocument(_ key: StickyDocumentKey, by author: Author, _ completion: @escaping Completion<Bool>) {
        completion(.failure(.readOnly))
    }

    // MARK: Events

    /// An empty list of events succeeds, because there is nothing to store.
    func record(_ events: [ReceivedEvent], _ completion: @escaping Completion<[EventOutcome]>) {
        completion(events.isEmpty ? .success([]) : .failure(.readOnly))
    }

    func exposures(after number: Int64, limit: Int, _ completion: @escaping Completion<[StoredExposure]>) {
        base.exposures(after: number, limit: limit, completion)
    }

    func goalEvents(after number: Int64, limit: Int, _ completion: @escaping Completion<[StoredGoalEvent]>) {
        base.goalEvents(after: number, limit: limit, completion)
    }

    func exposures(
        of userID: Identifier, before number: Int64, limit: Int, _ completion: @escaping Completion<[StoredExposure]>
    ) {
        base.exposures(of: userID, before: number, limit: limit, completion)
    }

    func goalEvents(
        of userID: Identifier, before number: Int64, limit: Int, _ completion: @escaping Completion<[StoredGoalEvent]>
    ) {
        base.goalEvents(of: userID, before: number, limit: limit, completion)
    }

    func tally(experimentID: Identifier, goal: Identifier, _ completion: @escaping Completion<ExperimentTally>) {
        base.tally(experimentID: experimentID, goal: goal, completion)
    }

    func goals(experimentID: Identifier, limit: Int, _ completion: @escaping Completion<[Identifier]>) {
        base.goals(experimentID: experimentID, limit: limit, completion)
    }

    // MARK: Projects

    func projects(
        ifChangedSince changes: Int64, datafilesAfter version: Int64, _ completion: @escaping Completion<ProjectState?>
    ) {
        base.projects(ifChangedSince: changes, datafilesAfter: version, completion)
    }

    func removals(after time: Int64, _ completion: @escaping Completion<[UserRemoval]>) {
        base.removals(after: time, completion)
    }

    func datafileHistory(sdkKey: String, limit: Int, _ completion: @escaping Completion<[StoredDatafile]>) {
        base.datafileHistory(sdkKey: sdkKey, limit: limit, completion)
    }

    func datafile(sdkKey: String, version: Int64, _ completion: @escaping Completion<StoredDatafile?>) {
        base.datafile(sdkKey: sdkKey, version: version, completion)
    }

    func datafile(sdkKey: String, activeAt time: Timestamp, _ completion: @escaping Completion<StoredDatafile?>) {
        base.datafile(sdkKey: sdkKey, activeAt: time, completion)
    }

    func lastDatafile(sdkKey: String, by author: Author, _ completion: @escaping Completion<StoredDatafile?>) {
        base.lastDatafile(sdkKey: sdkKey, by: author, completion)
    }

    func putDatafile(
        _ content: [UInt8], sdkKey: String, revision: String, allocations: [Identifier: TrafficAllocation],
        replacing: Int64?, makesProject: Bool, note: AuditNote, by author: Author,
        _ completion: @escaping Completion<StoredDatafile?>
    ) {
        completion(.failure(.readOnly))
    }

    func putProject(
        _ change: ProjectDefinition, datafile: [UInt8], by author: Author,
        _ completion: @escaping Completion<ProjectDefinitionResult>
    ) {
        completion(.failure(.readOnly))
    }

    func removeProject(
        sdkKey: String, expecting version: Int64, by author: Author,
        _ completion: @escaping Completion<ProjectRemovalResult>
    ) {
        completion(.failure(.readOnly))
    }

    func setForcedVariation(
        _ variationKey: Identifier?, experimentKey: Identifier, userID: Identifier, sdkKey: String, by author: Author,
        _ completion: @escaping Completion<Identifier?>
    ) {
        completion(.failure(.readOnly))
    }

    // MARK: The audit log

    func record(_ note: AuditNote, by author: Author, _ completion: @escaping Completion<Void>) {
        completion(.failure(.readOnly))
    }

    func auditEntries(_ query: AuditQuery, _ completion: @escaping Completion<[AuditEntry]>) {
        base.auditEntries(query, completion)
    }
}

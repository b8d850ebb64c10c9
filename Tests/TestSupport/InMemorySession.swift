import Bucketing
import Storage

/// The use of an ``InMemoryStore`` by one executor.
final class InMemorySession: StoreSession {
    private let store: InMemoryStore
    private let executor: any StoreExecutor
    private let clock: StoreClock
    private var isClosed = false

    init(_ store: InMemoryStore, on executor: any StoreExecutor) {
        self.store = store
        self.executor = executor
        clock = store.clock
    }

    /// Makes a change now or later.
    ///
    /// - Parameter userID: whose change it is; `nil` for a change that keeps its order among all others.
    private func change<Value: Sendable>(
        of userID: Identifier?, _ completion: @escaping Completion<Value>,
        _ body: @escaping @Sendable (inout InMemoryTables) throws(StorageError) -> Value
    ) {
        change(of: userID, completion) { store in store.result(of: body) }
    }

    private func change<Outcome: Sendable>(
        of userID: Identifier?, _ completion: @escaping (Outcome) -> Void,
        _ perform: @escaping @Sendable (InMemoryStore) -> Outcome
    ) {
        guard case .shuffled = store.timing else { return completion(perform(store)) }
        let completion = PendingCompletion(completion)
        store.schedule(userID) { [store, executor] in
            let outcome = perform(store)
            executor.submit { completion.call(outcome) }
        }
    }

    /// Reads now or later.
    private func read<Value: Sendable>(
        of userID: Identifier? = nil, _ completion: @escaping Completion<Value>,
        _ body: @escaping @Sendable (InMemoryTables) -> Value
    ) {
        guard !isClosed else { return completion(.failure(.closed)) }
        change(of: userID, completion) { store in store.read(body) }
    }

    func prepareLookups() {}

    func beginBatch() {}

    func endBatch() {}

    var cacheMetrics: CacheMetrics { CacheMetrics() }

    func close() {
        isClosed = true
    }

    // MARK: Profiles

    func profile(of userID: Identifier, _ completion: @escaping Completion<ProfileRecord?>) {
        let now = clock.now()
        read(of: userID, completion) { $0.profiles[userID]?.visible(at: now) }
    }

    func records(of userID: Identifier, _ completion: @escaping Completion<UserRecords>) {
        read(of: userID, completion) { tables in tables.records(of: userID) }
    }

    func profiles(after: Identifier?, limit: Int, _ completion: @escaping Completion<ProfilePage>) {
        let now = clock.now()
        read(completion) { tables in
            let userIDs = tables.profiles.keys.filter { userID in after.map { $0 < userID } ?? true }.sorted()
            let page = userIDs.prefix(limit)
            let visible = page.compactMap { userID in
                tables.profiles[userID]?.visible(at: now).map { (userID: userID, profile: $0) }
            }
            return ProfilePage(profiles: visible, end: page.count < limit ? nil : page.last)
        }
    }

    func submit(_ change: ProfileChange, by author: Author?, _ completion: @escaping Completion<ProfileChangeResult>) {
        let clock = clock
        self.change(of: change.userID, completion) { tables throws(StorageError) in
            try tables.apply(change, by: author, at: clock.now())
        }
    }

    func merge(_ merge: ProfileMerge, by author: Author, _ completion: @escaping Completion<ProfileMergeResult>) {
        let clock = clock
        change(of: nil, completion) { tables throws(StorageError) in
            try tables.apply(merge, by: author, at: clock.now())
        }
    }

    func submit(
        _ changes: [ProfileChange], by author: Author?,
        _ completion: @escaping ([Result<ProfileChangeResult, StorageError>]) -> Void
    ) {
        let clock = clock
        change(of: nil, completion) { store in
            changes.map { change in
                store.result { tables throws(StorageError) in try tables.apply(change, by: author, at: clock.now()) }
            }
        }
    }

    // MARK: Attributes

    func attributes(of userID: Identifier, _ completion: @escaping Completion<AttributeRecord?>) {
        read(of: userID, completion) { $0.attributes[userID] }
    }

    func submit(_ change: AttributeChange, _ completion: @escaping Completion<AttributeChangeResult>) {
        self.change(of: change.userID, completion) { tables throws(StorageError) in tables.apply(change) }
    }

    func submit(
        _ changes: [AttributeChange], _ completion: @escaping ([Result<AttributeChangeResult, StorageError>]) -> Void
    ) {
        change(of: nil, completion) { store in
            changes.map { change in store.result { tables throws(StorageError) in tables.apply(change) } }
        }
    }

    func putAttribute(
        _ definition: AttributeDefinition, by author: Author,
        _ completion: @escaping Completion<AttributeDefinitionResult>
    ) {
        let clock = clock
        change(of: nil, completion) { tables throws(StorageError) in
            tables.define(definition, by: author, at: clock.now())
        }
    }

    func removeAttribute(_ name: Identifier, by author: Author, _ completion: @escaping Completion<Bool>) {
        let clock = clock
        change(of: nil, completion) { tables throws(StorageError) in
            tables.removeAttribute(name, by: author, at: clock.now())
        }
    }

    func putSegment(_ segment: Segment, by author: Author, _ completion: @escaping Completion<Bool>) {
        let clock = clock
        change(of: nil, completion) { tables throws(StorageError) in tables.put(segment, by: author, at: clock.now()) }
    }

    func removeSegment(_ name: Identifier, by author: Author, _ completion: @escaping Completion<Bool>) {
        let clock = clock
        change(of: nil, completion) { tables throws(StorageError) in
            tables.removeSegment(name, by: author, at: clock.now())
        }
    }

    func scan(_ matcher: SegmentMatcher, _ scope: SegmentScan, _ completion: @escaping Completion<SegmentPage>) {
        read(completion) { $0.page(matcher, scope) }
    }

    // MARK: Sticky documents

    func stickyDocuments(_ keys: [StickyDocumentKey], _ completion: @escaping Completion<[StickyDocument?]>) {
        read(completion) { tables in keys.map { tables.stickyDocuments[$0] } }
    }

    func submit(_ change: StickyDocumentChange, _ completion: @escaping Completion<StickyDocument>) {
        self.change(of: change.key.attributeValue, completion) { tables throws(StorageError) in
            try tables.apply(change)
        }
    }

    func removeStickyDocument(_ key: StickyDocumentKey, by author: Author, _ completion: @escaping Completion<Bool>) {
        let clock = clock
        change(of: key.attributeValue, completion) { tables throws(StorageError) in
            tables.removeStickyDocument(key, by: author, at: clock.now())
        }
    }

    // MARK: Events

    func record(_ events: [ReceivedEvent], _ completion: @escaping Completion<[EventOutcome]>) {
        let clock = clock
        change(of: nil, completion) { tables throws(StorageError) in
            events.map { tables.apply($0.event, at: clock.now()) }
        }
    }

    func exposures(after number: Int64, limit: Int, _ completion: @escaping Completion<[StoredExposure]>) {
        read(completion) { Array($0.exposures.filter { $0.number > number }.prefix(limit)) }
    }

    func goalEvents(after number: Int64, limit: Int, _ completion: @escaping Completion<[StoredGoalEvent]>) {
        read(completion) { Array($0.goalEvents.filter { $0.number > number }.prefix(limit)) }
    }

    func exposures(
        of userID: Identifier, before number: Int64, limit: Int, _ completion: @escaping Completion<[StoredExposure]>
    ) {
        read(of: userID, completion) { tables in
            let found = tables.exposures.filter { $0.exposure.userID == userID && $0.number < number }
            return Array(found.sorted { $0.number > $1.number }.prefix(limit))
        }
    }

    func goalEvents(
        of userID: Identifier, before number: Int64, limit: Int, _ completion: @escaping Completion<[StoredGoalEvent]>
    ) {
        read(of: userID, completion) { tables in
            let found = tables.goalEvents.filter { $0.event.userID == userID && $0.number < number }
            return Array(found.sorted { $0.number > $1.number }.prefix(limit))
        }
    }

    func tally(experimentID: Identifier, goal: Identifier, _ completion: @escaping Completion<ExperimentTally>) {
        read(completion) { $0.tally(experimentID: experimentID, goal: goal) }
    }

    func goals(experimentID: Identifier, limit: Int, _ completion: @escaping Completion<[Identifier]>) {
        read(completion) { $0.goals(experimentID: experimentID, limit: limit) }
    }

    // MARK: Projects

    func projects(
        ifChangedSince changes: Int64, datafilesAfter version: Int64, _ completion: @escaping Completion<ProjectState?>
    ) {
        read(completion) { tables in
            guard tables.projectChanges != changes else { return nil }
            return ProjectState(
                changes: tables.projectChanges, projects: tables.projects, newestDatafile: tables.newestDatafile,
                datafiles: tables.datafiles.filter {
                    $0.version > version && tables.activeDatafile($0.sdkKey)?.version == $0.version
                },
                forcedVariations: tables.forcedVariations,
                schema: AttributeSchema(attributes: tables.definitions, segments: Array(tables.segments.values)))
        }
    }

    func removals(after time: Int64, _ completion: @escaping Completion<[UserRemoval]>) {
        read(completion) { tables in tables.removals.filter { $0.time > time } }
    }

    func datafileHistory(sdkKey: String, limit: Int, _ completion: @escaping Completion<[StoredDatafile]>) {
        read(completion) { tables in
            tables.datafiles.reversed().filter { $0.sdkKey == sdkKey }.prefix(limit).map { datafile in
                var datafile = datafile
                datafile.content = []
                return datafile
            }
        }
    }

    func datafile(sdkKey: String, activeAt time: Timestamp, _ completion: @escaping Completion<StoredDatafile?>) {
        read(completion) { tables in
            tables.datafiles.filter { $0.sdkKey == sdkKey }.suffix(max(1, tables.datafileHistory))
                .last { $0.storedAt <= time }
        }
    }

    func datafile(sdkKey: String, version: Int64, _ completion: @escaping Completion<StoredDatafile?>) {
        read(completion) { $0.datafiles.first { $0.sdkKey == sdkKey && $0.version == version } }
    }

    func lastDatafile(sdkKey: String, by author: Author, _ completion: @escaping Completion<StoredDatafile?>) {
        read(completion) { $0.datafiles.last { $0.sdkKey == sdkKey && $0.author == author.name } }
    }

    func putDatafile(
        _ content: [UInt8], sdkKey: String, revision: String, allocations: [Identifier: TrafficAllocation],
        replacing: Int64?, makesProject: Bool, note: AuditNote, by author: Author,
        _ completion: @escaping Completion<StoredDatafile?>
    ) {
        let datafile = StoredDatafile(
            version: 0, sdkKey: sdkKey, revision: revision, content: content, storedAt: clock.now(), author: author.name
        )
        change(of: nil, completion) { tables throws(StorageError) in
            tables.put(
                datafile, allocations, replacing: replacing, makesProject: makesProject, note: note, by: author)
        }
    }

    func putProject(
        _ change: ProjectDefinition, datafile: [UInt8], by author: Author,
        _ completion: @escaping Completion<ProjectDefinitionResult>
    ) {
        let datafile = StoredDatafile(
            version: 0, sdkKey: change.sdkKey, revision: "0", content: datafile, storedAt: clock.now(),
            author: author.name)
        self.change(of: nil, completion) { tables throws(StorageError) in
            tables.put(change, datafile: datafile, by: author)
        }
    }

    func removeProject(
        sdkKey: String, expecting version: Int64, by author: Author,
        _ completion: @escaping Completion<ProjectRemovalResult>
    ) {
        let clock = clock
        change(of: nil, completion) { tables throws(StorageError) in
            tables.removeProject(sdkKey, expecting: version, by: author, at: clock.now())
        }
    }

    func setForcedVariation(
        _ variationKey: Identifier?, experimentKey: Identifier, userID: Identifier, sdkKey: String, by author: Author,
        _ completion: @escaping Completion<Identifier?>
    ) {
        let clock = clock
        let variation = ForcedVariation(
            sdkKey: sdkKey, userID: userID, experimentKey: experimentKey, variationKey: variationKey ?? "")
        change(of: userID, completion) { tables throws(StorageError) in
            tables.force(variation, isRemoved: variationKey == nil, by: author, at: clock.now())
        }
    }

    // MARK: The audit log

    func record(_ note: AuditNote, by author: Author, _ completion: @escaping Completion<Void>) {
        let clock = clock
        change(of: nil, completion) { tables throws(StorageError) in tables.record(note, by: author, at: clock.now()) }
    }

    func auditEntries(_ query: AuditQuery, _ completion: @escaping Completion<[AuditEntry]>) {
        read(completion) { Array($0.auditEntries.reversed().filter { $0.matches(query) }.prefix(query.limit)) }
    }
}

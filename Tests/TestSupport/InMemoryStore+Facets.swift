public import Bucketing
public import Storage

extension InMemoryStore: ProfileStore, AuditStore {
    public func makeReader() throws(StorageError) -> sending any ProfileReader {
        try read { _ in }
        return InMemoryReader(store: self)
    }

    public func submit(
        _ change: ProfileChange, completion: @escaping @Sendable (Result<ProfileChangeResult, StorageError>) -> Void
    ) {
        let clock = clock
        self.change(
            of: change.userID, { tables throws(StorageError) in try tables.apply(change, by: nil, at: clock()) },
            completion: completion)
    }

    public func submit(
        _ changes: [ProfileChange],
        completion: @escaping @Sendable ([Result<ProfileChangeResult, StorageError>]) -> Void
    ) {
        schedule(nil) { [self] in
            completion(
                changes.map { change in
                    result { tables throws(StorageError) in try tables.apply(change, by: nil, at: self.clock()) }
                })
        }
    }

    public func submit(
        _ change: ProfileChange, by author: Author,
        completion: @escaping @Sendable (Result<ProfileChangeResult, StorageError>) -> Void
    ) {
        let clock = clock
        self.change(
            of: change.userID, { tables throws(StorageError) in try tables.apply(change, by: author, at: clock()) },
            completion: completion)
    }

    public func record(
        _ note: AuditNote, by author: Author, completion: @escaping @Sendable (Result<Void, StorageError>) -> Void
    ) {
        let clock = clock
        change(of: nil, { $0.record(note, by: author, at: clock()) }, completion: completion)
    }

    public func auditEntries(
        _ query: AuditQuery, completion: @escaping @Sendable (Result<[AuditEntry], StorageError>) -> Void
    ) {
        completion(readResult { Array($0.auditEntries.reversed().filter { $0.matches(query) }.prefix(query.limit)) })
    }
}

extension InMemoryStore: EventStore {
    public func record(
        _ events: [ReceivedEvent], completion: @escaping @Sendable (Result<[EventOutcome], StorageError>) -> Void
    ) {
        let clock = clock
        change(
            of: nil, { tables in events.map { tables.apply($0.event, at: clock()) } }, completion: completion)
    }

    public func exposures(after number: Int64, limit: Int) throws(StorageError) -> [StoredExposure] {
        try read { Array($0.exposures.filter { $0.number > number }.prefix(limit)) }
    }

    public func goalEvents(after number: Int64, limit: Int) throws(StorageError) -> [StoredGoalEvent] {
        try read { Array($0.goalEvents.filter { $0.number > number }.prefix(limit)) }
    }

    public func tallies(experimentID: Identifier, goal: Identifier) throws(StorageError) -> [VariationTally] {
        try read { $0.tallies(experimentID: experimentID, goal: goal) }
    }

    public func goals(experimentID: Identifier, limit: Int) throws(StorageError) -> [Identifier] {
        try read { $0.goals(experimentID: experimentID, limit: limit) }
    }
}

extension InMemoryStore: ProjectStore {
    public func projectChanges() throws(StorageError) -> Int64 {
        try read(\.projectChanges)
    }

    public func datafiles(after version: Int64) throws(StorageError) -> [StoredDatafile] {
        try read { tables in
            tables.datafiles.filter { $0.version > version && tables.activeDatafile($0.sdkKey)?.version == $0.version }
        }
    }

    public func datafileHistory(sdkKey: String, limit: Int) throws(StorageError) -> [StoredDatafile] {
        try read { tables in
            tables.datafiles.reversed().filter { $0.sdkKey == sdkKey }.prefix(limit).map { datafile in
                var datafile = datafile
                datafile.content = []
                return datafile
            }
        }
    }

    public func lastDatafile(sdkKey: String, by author: Author) throws(StorageError) -> StoredDatafile? {
        try read { $0.datafiles.last { $0.sdkKey == sdkKey && $0.author == author.name } }
    }

    public func forcedVariations() throws(StorageError) -> [ForcedVariation] {
        try read(\.forcedVariations)
    }

    public func putDatafile(
        _ content: [UInt8], sdkKey: String, revision: String, replacing: Int64?, note: AuditNote, by author: Author,
        completion: @escaping @Sendable (Result<StoredDatafile?, StorageError>) -> Void
    ) {
        let datafile = StoredDatafile(
            version: 0, sdkKey: sdkKey, revision: revision, content: content, storedAt: clock(), author: author.name)
        change(of: nil, { $0.put(datafile, replacing: replacing, note: note, by: author) }, completion: completion)
    }

    public func setForcedVariation(
        _ variationKey: Identifier?, experimentKey: Identifier, userID: Identifier, sdkKey: String, by author: Author,
        completion: @escaping @Sendable (Result<Identifier?, StorageError>) -> Void
    ) {
        let clock = clock
        let variation = ForcedVariation(
            sdkKey: sdkKey, userID: userID, experimentKey: experimentKey, variationKey: variationKey ?? "")
        change(
            of: userID, { $0.force(variation, isRemoved: variationKey == nil, by: author, at: clock()) },
            completion: completion)
    }
}

extension InMemoryStore: AttributeStore {
    public func makeUserReader() throws(StorageError) -> sending any UserReader {
        try read { _ in }
        return InMemoryReader(store: self)
    }

    public func submit(
        _ change: AttributeChange, completion: @escaping @Sendable (Result<AttributeChangeResult, StorageError>) -> Void
    ) {
        self.change(of: change.userID, { $0.apply(change) }, completion: completion)
    }

    public func submit(
        _ changes: [AttributeChange],
        completion: @escaping @Sendable ([Result<AttributeChangeResult, StorageError>]) -> Void
    ) {
        schedule(nil) { [self] in completion(changes.map { change in result { $0.apply(change) } }) }
    }

    public func attributeSchema() throws(StorageError) -> AttributeSchema {
        try read { AttributeSchema(attributes: $0.definitions, segments: Array($0.segments.values)) }
    }

    public func putAttribute(
        _ definition: AttributeDefinition, by author: Author,
        completion: @escaping @Sendable (Result<AttributeDefinitionResult, StorageError>) -> Void
    ) {
        let clock = clock
        change(of: nil, { $0.define(definition, by: author, at: clock()) }, completion: completion)
    }

    public func removeAttribute(
        _ name: Identifier, by author: Author, completion: @escaping @Sendable (Result<Bool, StorageError>) -> Void
    ) {
        let clock = clock
        change(of: nil, { $0.removeAttribute(name, by: author, at: clock()) }, completion: completion)
    }

    public func putSegment(
        _ segment: Segment, by author: Author, completion: @escaping @Sendable (Result<Bool, StorageError>) -> Void
    ) {
        let clock = clock
        change(of: nil, { $0.put(segment, by: author, at: clock()) }, completion: completion)
    }

    public func removeSegment(
        _ name: Identifier, by author: Author, completion: @escaping @Sendable (Result<Bool, StorageError>) -> Void
    ) {
        let clock = clock
        change(of: nil, { $0.removeSegment(name, by: author, at: clock()) }, completion: completion)
    }

    public func scan(
        _ matcher: SegmentMatcher, _ scope: SegmentScan,
        completion: @escaping @Sendable (Result<SegmentPage, StorageError>) -> Void
    ) {
        completion(readResult { $0.page(matcher, scope) })
    }
}

/// Reads an ``InMemoryStore``.
private final class InMemoryReader: UserReader {
    private let store: InMemoryStore
    private var isClosed = false

    init(store: InMemoryStore) {
        self.store = store
    }

    func beginBatch() {}

    func endBatch() {}

    func profile(of userID: Identifier, _ completion: @escaping (Result<ProfileRecord?, StorageError>) -> Void) {
        let now = store.clock()
        completion(read { $0.profiles[userID]?.visible(at: now) })
    }

    func attributes(of userID: Identifier, _ completion: @escaping (Result<AttributeRecord?, StorageError>) -> Void) {
        completion(read { $0.attributes[userID] })
    }

    func profiles(
        after: Identifier?, limit: Int, _ completion: @escaping (Result<ProfilePage, StorageError>) -> Void
    ) {
        let now = store.clock()
        completion(
            read { tables in
                let userIDs = tables.profiles.keys.filter { userID in after.map { $0 < userID } ?? true }.sorted()
                let page = userIDs.prefix(limit)
                let visible = page.compactMap { userID in
                    tables.profiles[userID]?.visible(at: now).map { (userID: userID, profile: $0) }
                }
                return ProfilePage(profiles: visible, end: page.count < limit ? nil : page.last)
            })
    }

    var cacheStatistics: CacheStatistics { CacheStatistics() }

    func close() {
        isClosed = true
    }

    private func read<Value>(_ body: (InMemoryTables) -> sending Value) -> Result<Value, StorageError> {
        isClosed ? .failure(.closed) : store.readResult(body)
    }
}

public import Bucketing
public import Storage

extension SQLiteStore: ProjectStore {
    public func projectChanges() throws(StorageError) -> Int64 {
        try projectReader.read { connection throws(SQLiteError) in
            try connection.integer("SELECT project_changes FROM counters")
        }
    }

    public func datafiles(after version: Int64) throws(StorageError) -> [StoredDatafile] {
        try projectReader.read { connection throws(SQLiteError) in
            try DatafileRows.active(after: version, on: connection)
        }
    }

    public func datafileHistory(sdkKey: String, limit: Int) throws(StorageError) -> [StoredDatafile] {
        try projectReader.read { connection throws(SQLiteError) in
            try DatafileRows.history(sdkKey: sdkKey, limit: limit, on: connection)
        }
    }

    public func lastDatafile(sdkKey: String, by author: Author) throws(StorageError) -> StoredDatafile? {
        try projectReader.read { connection throws(SQLiteError) in
            try DatafileRows.last(sdkKey: sdkKey, by: author.name, on: connection)
        }
    }

    public func forcedVariations() throws(StorageError) -> [ForcedVariation] {
        try projectReader.read { connection throws(SQLiteError) in
            try ForcedVariationRows.all(on: connection)
        }
    }

    public func putDatafile(
        _ content: [UInt8], sdkKey: String, revision: String, replacing: Int64?, note: AuditNote, by author: Author,
        completion: @escaping @Sendable (Result<StoredDatafile?, StorageError>) -> Void
    ) {
        let now = configuration.clock()
        let history = configuration.datafileHistory
        writer.submit(
            { transaction -> StoredDatafile? in
                let former = try DatafileRows.active(sdkKey: sdkKey, on: transaction.connection)
                if let replacing, former?.version ?? 0 != replacing { return nil }
                let datafile = StoredDatafile(
                    version: 0, sdkKey: sdkKey, revision: revision, content: content, storedAt: now, author: author.name)
                let stored = try DatafileRows.insert(datafile, in: transaction)
                // The next start compares `--datafile` with the last datafile from this option.
                try DatafileRows.prune(
                    sdkKey: sdkKey, keeping: history, andLastOf: Author.processUser.name, in: transaction)
                try transaction.record(note.activating(stored, replacing: former), by: author, at: now)
                return stored
            }, completion: completion)
    }

    public func setForcedVariation(
        _ variationKey: Identifier?, experimentKey: Identifier, userID: Identifier, sdkKey: String, by author: Author,
        completion: @escaping @Sendable (Result<Identifier?, StorageError>) -> Void
    ) {
        let now = configuration.clock()
        writer.submit(
            { transaction in
                try transaction.expectNotErased(userID)
                return try transaction.apply(to: userID, at: now) { records, tallies in
                    StoreRules.force(
                        variationKey, experimentKey: experimentKey, sdkKey: sdkKey, by: author, in: &records, &tallies)
                }.former
            }, completion: completion)
    }
}

extension SQLiteStore: AttributeStore {
    public func makeUserReader() throws(StorageError) -> sending any UserReader {
        try makeSQLiteReader()
    }

    public func submit(
        _ change: AttributeChange, completion: @escaping @Sendable (Result<AttributeChangeResult, StorageError>) -> Void
    ) {
        writer.submit({ try AttributeRows.apply(change, in: $0) }, completion: completion)
    }

    public func submit(
        _ changes: [AttributeChange],
        completion: @escaping @Sendable ([Result<AttributeChangeResult, StorageError>]) -> Void
    ) {
        writer.submit(changes, { try AttributeRows.apply($0, in: $1) }, completion: completion)
    }

    public func attributeSchema() throws(StorageError) -> AttributeSchema {
        try projectReader.read { connection throws(SQLiteError) in
            AttributeSchema(
                attributes: try AttributeSchemaRows.all(on: connection), segments: try SegmentRows.all(on: connection))
        }
    }

    public func putAttribute(
        _ definition: AttributeDefinition, by author: Author,
        completion: @escaping @Sendable (Result<AttributeDefinitionResult, StorageError>) -> Void
    ) {
        let now = configuration.clock()
        writer.submit(
            { transaction in
                let former = try AttributeSchemaRows.find(definition.name, on: transaction.connection)
                let result = try AttributeSchemaRows.put(
                    AttributeRules.define(definition, replacing: former), in: transaction)
                if let note = AuditNote(result, replacing: former) { try transaction.record(note, by: author, at: now) }
                return result
            }, completion: completion)
    }

    public func removeAttribute(
        _ name: Identifier, by author: Author, completion: @escaping @Sendable (Result<Bool, StorageError>) -> Void
    ) {
        let now = configuration.clock()
        writer.submit({ transaction in
            guard let former = try AttributeSchemaRows.remove(name, in: transaction) else { return false }
            try transaction.record(AuditNote(removing: former), by: author, at: now)
            return true
        }) { [attributeRemoval] result in
            completion(result)
            if case .success(true) = result { attributeRemoval.sweep() }
        }
    }

    public func putSegment(
        _ segment: Segment, by author: Author, completion: @escaping @Sendable (Result<Bool, StorageError>) -> Void
    ) {
        let now = configuration.clock()
        writer.submit(
            { transaction in
                let former = try SegmentRows.find(segment.name, on: transaction.connection)
                guard former != segment.conditions else { return false }
                try SegmentRows.put(segment, in: transaction)
                try transaction.record(AuditNote(segment, replacing: former), by: author, at: now)
                return former == nil
            }, completion: completion)
    }

    public func removeSegment(
        _ name: Identifier, by author: Author, completion: @escaping @Sendable (Result<Bool, StorageError>) -> Void
    ) {
        let now = configuration.clock()
        writer.submit(
            { transaction in
                guard let former = try SegmentRows.find(name, on: transaction.connection) else { return false }
                try SegmentRows.remove(name, in: transaction)
                try transaction.record(AuditNote(.segmentDelete, of: name.string, before: former), by: author, at: now)
                return true
            }, completion: completion)
    }

    public func scan(
        _ matcher: SegmentMatcher, _ scope: SegmentScan,
        completion: @escaping @Sendable (Result<SegmentPage, StorageError>) -> Void
    ) {
        segmentReader.scan(matcher, scope, completion: completion)
    }
}

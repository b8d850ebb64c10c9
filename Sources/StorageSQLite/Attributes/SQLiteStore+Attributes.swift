public import Bucketing
import JSON
public import Storage

extension SQLiteStore: AttributeStore {
    public func makeUserReader() throws(StorageError) -> sending any UserReader {
        try makeSQLiteReader()
    }

    func makeSQLiteReader() throws(StorageError) -> sending SQLiteProfileReader {
        guard !writer.notices.isClosed else { throw .closed }
        do throws(SQLiteError) {
            return try SQLiteProfileReader(
                file: file, notices: writer.notices, knownUsers: writer.knownUsers, configuration: configuration)
        } catch {
            throw error.asStorageError
        }
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
                let result = try AttributeSchemaRows.put(definition, in: transaction)
                switch result {
                case .created(let stored), .changed(let stored):
                    let note = AuditNote(
                        .attributePut, of: stored.name.string,
                        before: former.map { AttributeSchemaRows.describe($0) } ?? .null,
                        after: AttributeSchemaRows.describe(stored))
                    try transaction.record(note, by: author, at: now)
                case .unchanged, .otherType: break
                }
                return result
            }, completion: completion)
    }

    public func removeAttribute(
        _ name: Identifier, by author: Author, completion: @escaping @Sendable (Result<Bool, StorageError>) -> Void
    ) {
        let now = configuration.clock()
        writer.submit({ transaction in
            guard let former = try AttributeSchemaRows.remove(name, in: transaction) else { return false }
            let note = AuditNote(.attributeDelete, of: name.string, before: AttributeSchemaRows.describe(former))
            try transaction.record(note, by: author, at: now)
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
                let note = AuditNote(
                    .segmentPut, of: segment.name.string, before: former ?? .null, after: segment.conditions)
                try transaction.record(note, by: author, at: now)
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

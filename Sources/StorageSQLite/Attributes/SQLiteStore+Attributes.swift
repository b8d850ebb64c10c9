public import Bucketing
public import Storage

extension SQLiteStore: AttributeStore {
    public func makeUserReader() throws(StorageError) -> sending any UserReader {
        try makeSQLiteReader()
    }

    func makeSQLiteReader() throws(StorageError) -> sending SQLiteProfileReader {
        guard !writer.notices.isClosed else { throw .closed }
        do throws(SQLiteError) {
            return try SQLiteProfileReader(file: file, notices: writer.notices, configuration: configuration)
        } catch {
            throw error.asStorageError
        }
    }

    public func submit(
        _ change: AttributeChange, completion: @escaping @Sendable (Result<AttributeChangeResult, StorageError>) -> Void
    ) {
        writer.submit({ try AttributeRows.apply(change, in: $0) }, completion: completion)
    }

    public func attributeSchema() throws(StorageError) -> AttributeSchema {
        try projectReader.read { connection throws(SQLiteError) in
            AttributeSchema(
                attributes: try AttributeSchemaRows.all(on: connection), segments: try SegmentRows.all(on: connection))
        }
    }

    public func putAttribute(
        _ definition: AttributeDefinition,
        completion: @escaping @Sendable (Result<AttributeDefinitionResult, StorageError>) -> Void
    ) {
        writer.submit({ try AttributeSchemaRows.put(definition, in: $0) }, completion: completion)
    }

    public func removeAttribute(
        _ name: Identifier, completion: @escaping @Sendable (Result<Bool, StorageError>) -> Void
    ) {
        writer.submit({ try AttributeSchemaRows.remove(name, in: $0) }) { [attributeRemoval] result in
            completion(result)
            if case .success(true) = result { attributeRemoval.sweep() }
        }
    }

    public func putSegment(
        _ segment: Segment, completion: @escaping @Sendable (Result<Bool, StorageError>) -> Void
    ) {
        writer.submit({ try SegmentRows.put(segment, in: $0) }, completion: completion)
    }

    public func removeSegment(
        _ name: Identifier, completion: @escaping @Sendable (Result<Bool, StorageError>) -> Void
    ) {
        writer.submit({ try SegmentRows.remove(name, in: $0) }, completion: completion)
    }

    public func scan(
        _ matcher: SegmentMatcher, _ scope: SegmentScan,
        completion: @escaping @Sendable (Result<SegmentPage, StorageError>) -> Void
    ) {
        segmentReader.scan(matcher, scope, completion: completion)
    }
}

public import Storage

extension SQLiteStore: EventStore {
    public func append(
        _ events: [EventRecord], completion: @escaping @Sendable (Result<Void, StorageError>) -> Void
    ) {
        writer.submit(
            { transaction in
                for event in events { try EventRows.insert(event, in: transaction) }
            }, completion: completion)
    }
}

public import Storage

extension SQLiteStore: AuditStore {
    public func submit(
        _ change: ProfileChange, by author: Author,
        completion: @escaping @Sendable (Result<ProfileChangeResult, StorageError>) -> Void
    ) {
        let rules = configuration.rules
        let clock = configuration.clock
        writer.submit(
            { transaction in
                let now = clock()
                let former = try? Self.stored(for: change, in: transaction)?.visible(at: now)
                let changes = transaction.connection.totalChanges
                let result = try Self.apply(change, rules, at: now, in: transaction)
                // Also what is seen in no profile, such as a forced variation that was erased.
                if transaction.connection.totalChanges != changes,
                    let note = AuditNote(change, from: former, to: result.profile)
                {
                    try transaction.record(note, by: author, at: now)
                }
                return result
            }, completion: completion)
    }

    public func record(
        _ note: AuditNote, by author: Author, completion: @escaping @Sendable (Result<Void, StorageError>) -> Void
    ) {
        let now = configuration.clock()
        writer.submit({ try $0.record(note, by: author, at: now) }, completion: completion)
    }

    public func auditEntries(
        _ query: AuditQuery, completion: @escaping @Sendable (Result<[AuditEntry], StorageError>) -> Void
    ) {
        eventReader.read({ connection throws(SQLiteError) in try AuditRows.find(query, on: connection) }, completion)
    }
}

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
            try DatafileRows.inForce(after: version, on: connection)
        }
    }

    public func datafileHistory(sdkKey: String, limit: Int) throws(StorageError) -> [StoredDatafile] {
        try projectReader.read { connection throws(SQLiteError) in
            try DatafileRows.history(sdkKey: sdkKey, limit: limit, on: connection)
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
        writer.submit(
            { transaction -> StoredDatafile? in
                let former = try DatafileRows.inForce(sdkKey: sdkKey, on: transaction.connection)
                if let replacing, former?.version ?? 0 != replacing { return nil }
                let datafile = StoredDatafile(
                    version: 0, sdkKey: sdkKey, revision: revision, content: content, storedAt: now, author: author.name)
                let stored = try DatafileRows.insert(datafile, in: transaction)
                var note = note
                note.before = former.map { Self.describe($0, note.before) } ?? .null
                note.after = Self.describe(stored, note.after)
                try transaction.record(note, by: author, at: now)
                return stored
            }, completion: completion)
    }

    /// A datafile as the audit log tells of it, which is not the whole, and what else there is to tell.
    private static func describe(_ datafile: StoredDatafile, _ detail: JSONValue) -> JSONValue {
        var description = JSONObject()
        description["version"] = .integer(datafile.version)
        description["revision"] = .string(datafile.revision)
        for member in detail.object ?? JSONObject() { description[member.key] = member.value }
        return .object(description)
    }

    public func setForcedVariation(
        _ variationKey: Identifier?, experimentKey: Identifier, userID: Identifier, sdkKey: String, by author: Author,
        completion: @escaping @Sendable (Result<Identifier?, StorageError>) -> Void
    ) {
        let now = configuration.clock()
        writer.submit(
            { transaction in
                let former = try ForcedVariationRows.set(
                    variationKey, experimentKey: experimentKey, userID: userID, sdkKey: sdkKey, in: transaction)
                guard former != variationKey else { return former }
                func describe(_ key: Identifier?) -> JSONValue {
                    key.map { ["variation_key": .string($0.string), "sdk_key": .string(sdkKey)] } ?? .null
                }
                let note = AuditNote(
                    variationKey == nil ? .forcedVariationRemove : .forcedVariationSet, of: experimentKey.string,
                    userID: userID, before: describe(former), after: describe(variationKey))
                try transaction.record(note, by: author, at: now)
                return former
            }, completion: completion)
    }
}

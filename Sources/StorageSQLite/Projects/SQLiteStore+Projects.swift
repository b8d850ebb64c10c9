public import Bucketing
import JSON
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
                let former = try DatafileRows.inForce(sdkKey: sdkKey, on: transaction.connection)
                if let replacing, former?.version ?? 0 != replacing { return nil }
                let datafile = StoredDatafile(
                    version: 0, sdkKey: sdkKey, revision: revision, content: content, storedAt: now, author: author.name)
                let stored = try DatafileRows.insert(datafile, in: transaction)
                // By the last that came with `--datafile` the next start tells whether that has changed.
                try DatafileRows.prune(
                    sdkKey: sdkKey, keeping: history, andLastOf: Author.processUser.name, in: transaction)
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
                try transaction.expectNotErased(userID)
                let former = try ForcedVariationRows.set(
                    variationKey, experimentKey: experimentKey, userID: userID, sdkKey: sdkKey, in: transaction)
                if former != variationKey {
                    let note = AuditNote(
                        variationKey == nil ? .forcedVariationRemove : .forcedVariationSet, of: experimentKey.string,
                        userID: userID, before: Self.describe(former, sdkKey), after: Self.describe(variationKey, sdkKey))
                    try transaction.record(note, by: author, at: now)
                }
                guard variationKey != nil else { return former }
                var recording = EventRecording(in: transaction)
                for experimentID in try ExposureRows.experimentIDs(
                    ofUser: userID, key: experimentKey, sdkKey: sdkKey, on: transaction.connection)
                {
                    try recording.leaveOut(userID, of: experimentID)
                }
                try recording.finish()
                return former
            }, completion: completion)
    }

    private static func describe(_ variationKey: Identifier?, _ sdkKey: String) -> JSONValue {
        guard let variationKey else { return .null }
        return ["variation_key": .string(variationKey.string), "sdk_key": .string(sdkKey)]
    }
}

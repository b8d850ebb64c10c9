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
        _ content: [UInt8], sdkKey: String, revision: String, author: String, replacing: Int64?,
        completion: @escaping @Sendable (Result<StoredDatafile?, StorageError>) -> Void
    ) {
        let now = configuration.clock()
        writer.submit(
            { transaction -> StoredDatafile? in
                if let replacing {
                    let inForce = try DatafileRows.versionInForce(sdkKey: sdkKey, on: transaction.connection)
                    guard inForce == replacing else { return nil }
                }
                let datafile = StoredDatafile(
                    version: 0, sdkKey: sdkKey, revision: revision, content: content, storedAt: now, author: author)
                return try DatafileRows.insert(datafile, in: transaction)
            }, completion: completion)
    }

    public func setForcedVariation(
        _ variationKey: Identifier?, experimentKey: Identifier, userID: Identifier, sdkKey: String,
        completion: @escaping @Sendable (Result<Identifier?, StorageError>) -> Void
    ) {
        writer.submit(
            { transaction in
                let former = try ForcedVariationRows.set(
                    variationKey, experimentKey: experimentKey, userID: userID, sdkKey: sdkKey, in: transaction)
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
}

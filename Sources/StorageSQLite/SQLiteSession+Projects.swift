import Bucketing
import Storage

extension SQLiteSession {
    // MARK: Datafiles and forced variations

    func projects(
        ifChangedSince changes: Int64, datafilesAfter version: Int64, _ completion: @escaping Completion<ProjectState?>
    ) {
        scan(
            with: store.projectReader,
            { connection throws(SQLiteError) in
                let changeCount: StaticString = "SELECT project_changes FROM counters"
                guard try connection.integer(changeCount) != changes else { return nil }
                // One snapshot for all tables.
                try connection.statement("BEGIN").run()
                defer { try? connection.statement("COMMIT").run() }
                return ProjectState(
                    changes: try connection.integer(changeCount),
                    projects: try ProjectRows.all(on: connection),
                    newestDatafile: try DatafileRows.newestVersion(on: connection),
                    datafiles: try DatafileRows.active(after: version, on: connection),
                    forcedVariations: try ForcedVariationRows.all(on: connection),
                    schema: AttributeSchema(
                        attributes: try AttributeSchemaRows.all(on: connection),
                        segments: try SegmentRows.all(on: connection)))
            }, completion)
    }

    func removals(after time: Int64, _ completion: @escaping Completion<[UserRemoval]>) {
        scan(
            with: store.projectReader,
            { connection throws(SQLiteError) in try ErasureRows.all(after: time, on: connection) }, completion)
    }

    func datafileHistory(sdkKey: String, limit: Int, _ completion: @escaping Completion<[StoredDatafile]>) {
        scan(
            with: store.projectReader,
            { connection throws(SQLiteError) in
                try DatafileRows.history(sdkKey: sdkKey, limit: limit, on: connection)
            }, completion)
    }

    func datafile(sdkKey: String, activeAt time: Timestamp, _ completion: @escaping Completion<StoredDatafile?>) {
        let history = store.settings.datafileHistory
        scan(
            with: store.projectReader,
            { connection throws(SQLiteError) in
                try DatafileRows.active(sdkKey: sdkKey, at: time, keeping: history, on: connection)
            }, completion)
    }

    func datafile(sdkKey: String, version: Int64, _ completion: @escaping Completion<StoredDatafile?>) {
        scan(
            with: store.projectReader,
            { connection throws(SQLiteError) in
                try DatafileRows.find(sdkKey: sdkKey, version: version, on: connection)
            }, completion)
    }

    func lastDatafile(sdkKey: String, by author: Author, _ completion: @escaping Completion<StoredDatafile?>) {
        scan(
            with: store.projectReader,
            { connection throws(SQLiteError) in
                try DatafileRows.last(sdkKey: sdkKey, by: author.name, on: connection)
            }, completion)
    }

    func putDatafile(
        _ content: [UInt8], sdkKey: String, revision: String, allocations: [Identifier: TrafficAllocation],
        replacing: Int64?, makesProject: Bool, note: AuditNote, by author: Author,
        _ completion: @escaping Completion<StoredDatafile?>
    ) {
        let history = store.settings.datafileHistory
        write(
            bytes: WaitingBytes.ofChange + content.count,
            { transaction -> StoredDatafile? in
                // Not before: assignments that precede this change in the queue were made with the former datafile.
                let now = transaction.now
                let former = try DatafileRows.active(sdkKey: sdkKey, on: transaction.connection)
                if let replacing, former?.version ?? 0 != replacing { return nil }
                let projects = try ProjectRows.all(on: transaction.connection)
                switch ProjectRules.activate(sdkKey, makesProject: makesProject, among: projects, at: now) {
                case .known: break
                case .new(let record): try ProjectRows.put(record, in: transaction)
                case .refused: return nil
                }
                let datafile = StoredDatafile(
                    version: 0, sdkKey: sdkKey, revision: revision, content: content, storedAt: now, author: author.name
                )
                let stored = try DatafileRows.insert(datafile, in: transaction)
                let latest = try AllocationPeriodRows.latest(sdkKey: sdkKey, on: transaction.connection)
                for (experimentID, period) in AllocationRules.periods(begunBy: stored, allocations, after: latest) {
                    try transaction.put(period, of: experimentID)
                }
                // The next start compares `--datafile` with the last datafile from this option.
                try DatafileRows.prune(
                    sdkKey: sdkKey, keeping: history, andLastOf: Author.processUser.name, in: transaction)
                try transaction.record(note.activating(stored, replacing: former), by: author, at: now)
                return stored
            }, completion)
    }

    func putProject(
        _ change: ProjectDefinition, datafile: [UInt8], by author: Author,
        _ completion: @escaping Completion<ProjectDefinitionResult>
    ) {
        write(
            { transaction in
                let now = transaction.now
                let projects = try ProjectRows.all(on: transaction.connection)
                let result = ProjectRules.apply(change, among: projects, at: now)
                let former = projects.first { $0.sdkKey == change.sdkKey }
                guard let note = AuditNote(result, replacing: former) else { return result }
                try ProjectRows.put(result.record, in: transaction)
                if case .created = result {
                    let stored = StoredDatafile(
                        version: 0, sdkKey: change.sdkKey, revision: "0", content: datafile, storedAt: now,
                        author: author.name)
                    _ = try DatafileRows.insert(stored, in: transaction)
                }
                try transaction.record(note, by: author, at: now)
                return result
            }, completion)
    }

    func removeProject(
        sdkKey: String, expecting version: Int64, by author: Author,
        _ completion: @escaping Completion<ProjectRemovalResult>
    ) {
        write(
            { transaction in
                let now = transaction.now
                let projects = try ProjectRows.all(on: transaction.connection)
                let active = try DatafileRows.active(sdkKey: sdkKey, on: transaction.connection)?.version ?? 0
                let result = ProjectRules.remove(sdkKey, expecting: version, active: active, among: projects)
                guard result == .removed, let former = projects.first(where: { $0.sdkKey == sdkKey }) else {
                    return result
                }
                try DatafileRows.delete(sdkKey: sdkKey, in: transaction)
                try ForcedVariationRows.deleteAll(sdkKey: sdkKey, in: transaction)
                try ProjectRows.delete(sdkKey: sdkKey, in: transaction)
                try transaction.record(AuditNote(removing: former), by: author, at: now)
                return result
            }, completion)
    }

    func setForcedVariation(
        _ variationKey: Identifier?, experimentKey: Identifier, userID: Identifier, sdkKey: String, by author: Author,
        _ completion: @escaping Completion<Identifier?>
    ) {
        write(
            { transaction in
                let now = transaction.now
                try transaction.expectNotErased(userID)
                return try transaction.apply(to: userID, at: now) { records, tallies in
                    StoreRules.force(
                        variationKey, experimentKey: experimentKey, sdkKey: sdkKey, by: author, in: &records, &tallies)
                }.former
            }, completion)
    }

    // MARK: Attributes and segments

    func putAttribute(
        _ definition: AttributeDefinition, by author: Author,
        _ completion: @escaping Completion<AttributeDefinitionResult>
    ) {
        write(
            { transaction in
                let now = transaction.now
                let former = try AttributeSchemaRows.find(definition.name, on: transaction.connection)
                let result = try AttributeSchemaRows.put(
                    AttributeRules.define(definition, replacing: former), in: transaction)
                if let note = AuditNote(result, replacing: former) { try transaction.record(note, by: author, at: now) }
                return result
            }, completion)
    }

    func removeAttribute(_ name: Identifier, by author: Author, _ completion: @escaping Completion<Bool>) {
        let removal = store.attributeRemoval
        write(
            { transaction in
                let now = transaction.now
                guard let former = try AttributeSchemaRows.remove(name, in: transaction) else { return false }
                try transaction.record(AuditNote(removing: former), by: author, at: now)
                return true
            },
            { result in
                completion(result)
                if case .success(true) = result { removal.sweep() }
            })
    }

    func putSegment(_ segment: Segment, by author: Author, _ completion: @escaping Completion<Bool>) {
        write(
            { transaction in
                let now = transaction.now
                let former = try SegmentRows.find(segment.name, on: transaction.connection)
                guard former != segment.conditions else { return false }
                try SegmentRows.put(segment, in: transaction)
                try transaction.record(AuditNote(segment, replacing: former), by: author, at: now)
                return former == nil
            }, completion)
    }

    func removeSegment(_ name: Identifier, by author: Author, _ completion: @escaping Completion<Bool>) {
        write(
            { transaction in
                let now = transaction.now
                guard let former = try SegmentRows.find(name, on: transaction.connection) else { return false }
                try SegmentRows.remove(name, in: transaction)
                try transaction.record(AuditNote(.segmentDelete, of: name.string, before: former), by: author, at: now)
                return true
            }, completion)
    }

    // MARK: The audit log

    func record(_ note: AuditNote, by author: Author, _ completion: @escaping Completion<Void>) {
        write({ try $0.record(note, by: author, at: $0.now) }, completion)
    }

    func auditEntries(_ query: AuditQuery, _ completion: @escaping Completion<[AuditEntry]>) {
        scan(
            with: store.eventReader,
            { connection throws(SQLiteError) in try AuditRows.find(query, on: connection) }, completion)
    }
}

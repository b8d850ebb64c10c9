import Bucketing
import JSON
import Storage

extension PostgreSQLSession {
    // MARK: Projects

    func projects(
        ifChangedSince changes: Int64, datafilesAfter version: Int64, _ completion: @escaping Completion<ProjectState?>
    ) {
        guard !store.isClosed else { return completion(.failure(.closed)) }
        read([ProjectStateRow.readIfChanged(.integer(changes))]) { [self] result in
            switch result {
            case .success(let rows) where rows[0].count == 0: completion(.success(nil))
            case .success: readProjects(datafilesAfter: version, completion)
            case .failure(let error): completion(.failure(error))
            }
        }
    }

    /// Reads all tables in one snapshot.
    private func readProjects(datafilesAfter version: Int64, _ completion: @escaping Completion<ProjectState?>) {
        read([
            Statement.beginSnapshot(), ProjectStateRow.read(), DatafileRows.active(.integer(version)),
            ForcedVariationRows.all(), AttributeSchemaRows.all(), SegmentRows.all(), ProjectRows.all(),
            Statement.commit(),
        ]) { [clock = store.clock] result in
            completion(
                result.map { rows in
                    let state = ProjectStateRow(rows[1], 0)
                    let datafiles = rows[2].indices.map { DatafileRows.decode(rows[2], $0) }
                    // What is decided with a datafile comes after it.
                    if let newest = datafiles.map(\.storedAt).max() { clock.advance(to: newest) }
                    return ProjectState(
                        changes: state.changes, projects: ProjectRows.decode(rows[6]),
                        newestDatafile: state.newestDatafile, datafiles: datafiles,
                        forcedVariations: rows[3].indices.map { ForcedVariationRows.decode(rows[3], $0) },
                        schema: AttributeSchema(
                            attributes: rows[4].indices.compactMap { AttributeSchemaRows.decode(rows[4], $0) },
                            segments: Self.segments(rows[5])))
                })
        }
    }

    private static func segments(_ rows: Rows) -> [Segment] {
        rows.indices.compactMap { row in
            guard let conditions = SegmentRows.decodeConditions(rows, row), !conditions.isNull else { return nil }
            return Segment(name: rows.identifier(row, 0), conditions: conditions)
        }
    }

    func removals(after time: Int64, _ completion: @escaping Completion<[UserRemoval]>) {
        let longest = store.configuration.statementTimeout
        scan(ErasureRows.after(.integer(time), .double(longest)), completion) { rows in
            rows.indices.map { UserRemoval(mark: rows.integer($0, 0), time: rows.integer($0, 1)) }
        }
    }

    func datafileHistory(sdkKey: String, limit: Int, _ completion: @escaping Completion<[StoredDatafile]>) {
        scan(DatafileRows.history(.text(sdkKey), .integer(limit)), completion) { rows in
            rows.indices.map { DatafileRows.decode(rows, $0) }
        }
    }

    func datafile(sdkKey: String, activeAt time: Timestamp, _ completion: @escaping Completion<StoredDatafile?>) {
        let kept = max(1, store.settings.datafileHistory)
        scan(DatafileRows.activeAt(.text(sdkKey), .integer(time), .integer(kept)), completion) { rows in
            rows.count > 0 ? DatafileRows.decode(rows, 0) : nil
        }
    }

    func datafile(sdkKey: String, version: Int64, _ completion: @escaping Completion<StoredDatafile?>) {
        scan(DatafileRows.find(.integer(version), .text(sdkKey)), completion) { rows in
            rows.count > 0 ? DatafileRows.decode(rows, 0) : nil
        }
    }

    func lastDatafile(sdkKey: String, by author: Author, _ completion: @escaping Completion<StoredDatafile?>) {
        scan(DatafileRows.last(.text(sdkKey), .text(author.name)), completion) { rows in
            rows.count > 0 ? DatafileRows.decode(rows, 0) : nil
        }
    }

    func putDatafile(
        _ content: [UInt8], sdkKey: String, revision: String, allocations: [Identifier: TrafficAllocation],
        replacing: Int64?, makesProject: Bool, note: AuditNote, by author: Author,
        _ completion: @escaping Completion<StoredDatafile?>
    ) {
        let clock = store.clock
        let history = max(1, store.settings.datafileHistory)
        let reads = [
            DatafileRows.history(.text(sdkKey), .integer(1)), ProjectRows.all(),
            AllocationPeriodRows.latest(.text(sdkKey)),
        ]
        change(by: author, bytes: content.count, changesDatafiles: true, reads, StoredDatafile?.none, completion) {
            state, rows, result in
            // Not before: assignments that the lock waited for were made with the former datafile.
            let now = clock.now()
            let former = rows[0].count > 0 ? DatafileRows.decode(rows[0], 0) : nil
            result = nil
            if let replacing, former?.version ?? 0 != replacing { return nil }
            let projects = ProjectRows.decode(rows[1])
            var made: [Query] = []
            switch ProjectRules.activate(sdkKey, makesProject: makesProject, among: projects, at: now) {
            case .known: break
            case .new(let record): made = ProjectRows.put(record)
            case .refused: return nil
            }
            let stored = StoredDatafile(
                version: state.newestDatafile + 1, sdkKey: sdkKey, revision: revision, content: content, storedAt: now,
                author: author.name)
            result = stored
            let latest = Dictionary(
                rows[2].indices.map { AllocationPeriodRows.decode(rows[2], $0) }.map { ($0.experimentID, $0.period) },
                uniquingKeysWith: { _, last in last })
            let periods = AllocationRules.periods(begunBy: stored, allocations, after: latest)
            // The next start compares `--datafile` with the last datafile from this option.
            let queries =
                made + [
                    DatafileRows.insert(stored),
                    DatafileRows.prune(.text(sdkKey), .integer(history), .text(Author.processUser.name)),
                    ProjectStateRow.newestDatafile(.integer(stored.version)),
                ] + (periods.isEmpty ? [] : [AllocationPeriodRows.insert(periods)])
            return (queries, note.activating(stored, replacing: former))
        }
    }

    func putProject(
        _ change: ProjectDefinition, datafile: [UInt8], by author: Author,
        _ completion: @escaping Completion<ProjectDefinitionResult>
    ) {
        let clock = store.clock
        let initial = ProjectRules.apply(change, among: [], at: clock.now())
        self.change(by: author, changesDatafiles: true, [ProjectRows.all()], initial, completion) {
            state, rows, result in
            let now = clock.now()
            let projects = ProjectRows.decode(rows[0])
            result = ProjectRules.apply(change, among: projects, at: now)
            let former = projects.first { $0.sdkKey == change.sdkKey }
            guard let note = AuditNote(result, replacing: former) else { return nil }
            var queries = ProjectRows.put(result.record)
            if case .created = result {
                let stored = StoredDatafile(
                    version: state.newestDatafile + 1, sdkKey: change.sdkKey, revision: "0", content: datafile,
                    storedAt: now, author: author.name)
                queries += [DatafileRows.insert(stored), ProjectStateRow.newestDatafile(.integer(stored.version))]
            } else {
                queries.append(ProjectStateRow.changed())
            }
            return (queries, note)
        }
    }

    func removeProject(
        sdkKey: String, expecting version: Int64, by author: Author,
        _ completion: @escaping Completion<ProjectRemovalResult>
    ) {
        let active = DatafileRows.history(.text(sdkKey), .integer(1))
        change(
            by: author, changesDatafiles: true, [ProjectRows.all(), active], ProjectRemovalResult.absent, completion
        ) {
            _, rows, result in
            let projects = ProjectRows.decode(rows[0])
            let active = rows[1].count > 0 ? DatafileRows.decode(rows[1], 0).version : 0
            result = ProjectRules.remove(sdkKey, expecting: version, active: active, among: projects)
            guard result == .removed, let former = projects.first(where: { $0.sdkKey == sdkKey }) else { return nil }
            return (
                ProjectRows.delete(sdkKey: sdkKey) + [ProjectStateRow.changed()],
                AuditNote(removing: former)
            )
        }
    }

    func setForcedVariation(
        _ variationKey: Identifier?, experimentKey: Identifier, userID: Identifier, sdkKey: String, by author: Author,
        _ completion: @escaping Completion<Identifier?>
    ) {
        let outcome = Outcome<Identifier?>()
        let step = ChangeStep(userID) { round in
            let result = round.apply(to: userID) { records, tallies in
                StoreRules.force(
                    variationKey, experimentKey: experimentKey, sdkKey: sdkKey, by: author, in: &records, &tallies)
            }
            guard let result else { return false }
            outcome.result = result.map(\.former)
            return true
        }
        submit(PendingChange(.records, [step]) { failure in completion(outcome.result(unless: failure)) })
    }

    // MARK: Attributes and segments

    func putAttribute(
        _ definition: AttributeDefinition, by author: Author,
        _ completion: @escaping Completion<AttributeDefinitionResult>
    ) {
        let find = AttributeSchemaRows.find(.text(definition.name.string))
        change(by: author, [find], AttributeDefinitionResult.unchanged(definition), completion) { state, rows, result in
            let former = AttributeSchemaRows.decode(rows[0], 0)
            var queries: [Query] = []
            result = AttributeRules.define(definition, replacing: former)
            switch result {
            case .created(let wanted):
                let number = state.newestAttribute + 1
                result = .created(wanted.numbered(UInt32(clamping: number)))
                queries = [
                    AttributeSchemaRows.insert(
                        .integer(number), .text(wanted.name.string), AttributeSchemaRows.encoded(wanted)),
                    ProjectStateRow.newestAttribute(.integer(number)),
                ]
            case .changed(let definition):
                queries = [
                    AttributeSchemaRows.update(
                        .integer(Int64(definition.number)), AttributeSchemaRows.encoded(definition)),
                    ProjectStateRow.changed(),
                ]
            case .unchanged, .otherType: return nil
            }
            guard let note = AuditNote(result, replacing: former) else { return nil }
            return (queries, note)
        }
    }

    func removeAttribute(_ name: Identifier, by author: Author, _ completion: @escaping Completion<Bool>) {
        change(by: author, [AttributeSchemaRows.find(.text(name.string))], false, completion) { _, rows, result in
            guard let former = AttributeSchemaRows.decode(rows[0], 0) else { return nil }
            result = true
            let number = Parameter.integer(Int64(former.number))
            return (
                [
                    AttributeSchemaRows.delete(number), AttributeSchemaRows.insertRemoval(number),
                    ProjectStateRow.changed(),
                ], AuditNote(removing: former)
            )
        }
    }

    func putSegment(_ segment: Segment, by author: Author, _ completion: @escaping Completion<Bool>) {
        change(by: author, [SegmentRows.find(.text(segment.name.string))], false, completion) { _, rows, result in
            let former = SegmentRows.decodeConditions(rows[0], 0)
            result = former == nil
            guard former != segment.conditions else { return nil }
            return (
                [SegmentRows.put(segment), ProjectStateRow.changed()],
                AuditNote(segment, replacing: former)
            )
        }
    }

    func removeSegment(_ name: Identifier, by author: Author, _ completion: @escaping Completion<Bool>) {
        change(by: author, [SegmentRows.find(.text(name.string))], false, completion) { _, rows, result in
            guard let former = SegmentRows.decodeConditions(rows[0], 0) else { return nil }
            result = true
            return (
                [SegmentRows.delete(.text(name.string)), ProjectStateRow.changed()],
                AuditNote(.segmentDelete, of: name.string, before: former)
            )
        }
    }

    // MARK: The audit log

    func record(_ note: AuditNote, by author: Author, _ completion: @escaping Completion<Void>) {
        change(by: author, [], (), completion) { _, _, _ in ([], note) }
    }

    func auditEntries(_ query: AuditQuery, _ completion: @escaping Completion<[AuditEntry]>) {
        guard !store.isClosed else { return completion(.failure(.closed)) }
        // Which index serves it depends on what is asked for.
        let queries = [
            Statement.beginSnapshot(), Statement.planForValues(), AuditRows.find(query), Statement.commit(),
        ]
        read(queries) { result in
            completion(result.map { rows in rows[2].indices.map { AuditRows.decode(rows[2], $0) } })
        }
    }

    /// Submits a change of data that all users share.
    ///
    /// - Parameters:
    ///   - bytes: the memory of what is to be stored, if it may be large.
    ///   - initial: the result if nothing changes.
    ///   - decide: sets the result, and returns what to write and to record in the audit log; `nil` to write nothing.
    private func change<Value>(
        by author: Author, bytes: Int = 0, changesDatafiles: Bool = false, _ reads: [Query], _ initial: Value,
        _ completion: @escaping Completion<Value>,
        _ decide: @escaping (ProjectStateRow, [Rows], inout Value) -> (queries: [Query], note: AuditNote)?
    ) {
        let outcome = Outcome<Value>()
        let clock = store.clock
        submit(
            ProjectChange(
                bytes: WaitingBytes.ofChange + bytes,
                lock: (changesDatafiles ? [ProjectStateRow.lockNewest] : []) + [ProjectStateRow.readLocked()],
                reads: reads
            ) { rows in
                var value = initial
                defer { outcome.result = .success(value) }
                let state = ProjectStateRow(rows[changesDatafiles ? 1 : 0], 0)
                let rows = Array(rows.dropFirst(changesDatafiles ? 2 : 1))
                guard let decision = decide(state, rows, &value) else { return ([], 0) }
                let notice = decision.queries.isEmpty ? [] : [ProjectStateRow.notify()]
                let entry = AuditEntry(decision.note, by: author, at: clock.now())
                return (decision.queries + [AuditRows.insert([entry])] + notice, 1)
            } complete: { failure in
                completion(outcome.result(unless: failure))
            })
    }
}

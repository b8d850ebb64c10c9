import Bucketing
import Storage

/// Reads and writes what all users share, and sticky documents, for the rules in `Storage`.
extension SharedRecords {
    /// A query, and what becomes of each of its rows.
    typealias Reading = (query: Query, take: (ResultRow, inout SharedRecords) -> Void)

    /// The statements that keep other transactions from changing what is read, followed by those that read it.
    static func readings(_ parts: [Part]) -> (locks: [Reading], reads: [Reading]) {
        var (locks, reads): ([Reading], [Reading]) = ([], [])
        for part in parts {
            let (isLock, found) = readings(part)
            if isLock { locks += found } else { reads += found }
        }
        guard locks.isEmpty else { return (locks, reads) }
        // Only one transaction of all servers has it at a time.
        if parts.contains(.projects) { locks.append((ProjectStateRow.lockNewest, { _, _ in })) }
        if parts.contains(.series) { locks.append((RoundEffects.lockNumbers, { _, _ in })) }
        locks.append(
            (
                ProjectStateRow.readLocked(),
                { row, records in
                    let state = ProjectStateRow(row)
                    (records.newestDatafile, records.newestAttribute) = (state.newestDatafile, state.newestAttribute)
                }
            ))
        return (locks, reads)
    }

    private static func readings(_ part: Part) -> (isLock: Bool, readings: [Reading]) {
        switch part {
        case .projects: return (false, [(Query(allProjects), { $1.projects.append(ProjectRecord($0)) })])
        case .activeDatafile(let sdkKey):
            let query = Query(datafileHistory(sdkKey: sdkKey, limit: 1))
            return (false, [(query, { $1.activeDatafile = StoredDatafile($0) })])
        case .latestPeriods(let sdkKey, let experimentIDs):
            let take = { (row: ResultRow, records: inout SharedRecords) in
                let (experimentID, period) = AllocationPeriod.decode(row)
                records.latestPeriods[experimentID] = period
            }
            let takeStatus = { (row: ResultRow, records: inout SharedRecords) in
                let (experimentID, period) = StatusPeriod.decode(row)
                records.latestStatuses[experimentID] = period
            }
            return (
                false,
                [
                    (AllocationPeriodRows.latest(.text(sdkKey), .texts(experimentIDs.map(\.string))), take),
                    (StatusPeriodRows.latest(.text(sdkKey), .texts(experimentIDs.map(\.string))), takeStatus),
                ]
            )
        case .series:
            let all: Reading = (Query(allSeries), { if let series = TrackedSeries($0) { $1.series.append(series) } })
            let state: Reading = (
                SeriesRows.state(), { ($1.newestSeries, $1.eventsSince) = ($0.bounded(0), $0.bounded(1)) }
            )
            return (false, [all, state])
        case .attribute(let name):
            return (false, [(Query(find(name, in: .attributes)), { $1.attributes[name] = AttributeDefinition($0) })])
        case .segment(let name):
            let query = Query(find(name, in: .segments))
            return (false, [(query, { $1.segments[name] = Segment.conditions(stored: $0.text(1)) })])
        case .tallies(let experimentID):
            let readings: [Reading] = TallySnapshot.reading(experimentID, .postgreSQL).map { step in
                (Query(step.query), { step.take($0, &$1.tallies[experimentID, default: TallySnapshot()]) })
            }
            return (false, readings)
        case .stickyDocument(let key, let isChanged):
            let lock: Reading = (StickyDocumentRows.lock(key), { $1.stickyDocument = $0.text(0) })
            // A document that does not exist is created empty, so that it can be locked.
            return (true, isChanged ? [(StickyDocumentRows.create(key), { _, _ in }), lock] : [lock])
        case .proposal(let id):
            return (false, [(Query(find(proposal: id)), { $1.proposal = Proposal($0) })])
        case .look(let sdkKey, let experimentID):
            let query = Query(findLook(sdkKey: sdkKey, experimentID: experimentID))
            return (false, [(query, { $1.look = StoredLook($0) })])
        case .finding(let sdkKey, let experimentID):
            let query = Query(findFinding(sdkKey: sdkKey, experimentID: experimentID))
            return (false, [(query, { $1.finding = StoredLook($0) })])
        case .webhook(let key):
            return (
                false,
                [
                    (Query(find(webhook: key)), { $1.webhooks[key] = Webhook($0) }),
                    (Query(lastAuditEntry), { $1.lastAuditEntry = $0.integer(0) }),
                ]
            )
        }
    }

    /// The statements that perform the writes of a rule.
    func queries(_ settings: StoreSettings, at now: Timestamp) -> [Query] {
        let queries = writes.flatMap { Self.queries($0, settings, at: now) }
        guard writes.contains(where: \.changesProjects) else { return queries }
        let changes = writes.compactMap { write -> Query? in
            switch write {
            case .insertDatafile(let datafile): ProjectStateRow.newestDatafile(.integer(datafile.version))
            case .insertAttribute(let definition): ProjectStateRow.newestAttribute(.integer(Int(definition.number)))
            default: nil
            }
        }
        return queries + (changes.isEmpty ? [ProjectStateRow.changed()] : changes) + [ProjectStateRow.notify()]
    }

    private static func queries(_ write: Write, _ settings: StoreSettings, at now: Timestamp) -> [Query] {
        switch write {
        case .putProject(let record):
            (record.isDefault ? [unsetDefault()] : []) + [.insert([record.values], into: .projects)]
        case .deleteProject(let sdkKey):
            StoredTable.ofProject.map { delete(from: $0, where: "sdk_key = $1", .text(sdkKey)) }
        case .insertDatafile(let datafile):
            [
                .insert([datafile.values], into: .datafiles),
                prune(
                    .text(datafile.sdkKey), .integer(max(1, settings.datafileHistory)),
                    .text(Author.processUser.name)),
            ]
        case .insertPeriods(let periods):
            [.insert(periods.map { $0.period.values($0.experimentID) }, into: .allocationPeriods)]
        case .insertStatuses(let statuses):
            [.insert(statuses.map { $0.period.values($0.experimentID) }, into: .statusPeriods)]
        case .insertFrozenResults(let rows): [.insert(rows.map(\.values), into: .frozenResults)]
        case .putSeries(let series): [.insert([series.values], into: .trackedSeries)]
        case .deleteSums(let sums, let number):
            [SeriesRows.deleteSums(.text(sums.experimentID.string), .texts(sums.names.map(\.string)))]
                + sums.ranges.map {
                    SeriesRows.deleteGroupSums(
                        .text(sums.experimentID.string), .text($0.from.string), .text($0.to.string))
                } + (number.map { [SeriesRows.delete(.integer($0))] } ?? [])
        case .renumberSeries(let number): [SeriesRows.renumber(.integer(number))]
        case .insertAttribute(let definition): [.insert([definition.values], into: .attributes)]
        case .updateAttribute(let definition):
            [updateAttribute(.integer(Int(definition.number)), .text(definition.storedDocument))]
        case .deleteAttribute(let definition):
            [
                delete(from: .attributes, where: "number = $1", .integer(Int(definition.number))),
                .insert([[.integer(Int(definition.number)), .text("")]], into: .attributeRemovals),
            ]
        case .putSegment(let segment): [.insert([segment.values], into: .segments)]
        case .deleteSegment(let name): [delete(from: .segments, where: "name = $1", .text(name.string))]
        case .putStickyDocument(let document): [.insert([document.values], into: .stickyDocuments)]
        case .deleteStickyDocument(let key): [StickyDocumentRows.delete(key)]
        case .putLastUses(let uses): [.insert(uses.map(\.values), into: .lastUses)]
        case .insertProposal(let proposal):
            [.insert([proposal.values], into: .proposals), Query(pruneProposals(sdkKey: proposal.sdkKey))]
        case .updateProposal(let proposal): [Query(update(proposal))]
        case .putLook(let look): [.insert([look.values], into: .banditLooks)]
        case .putFinding(let finding): [.insert([finding.values], into: .experimentFindings)]
        case .putWebhook(let webhook): [.insert([webhook.values], into: .webhooks)]
        case .updateWebhook(let key, let state): [Query(update(webhook: key, state))]
        case .deleteWebhook(let key): [delete(from: .webhooks, where: "key = $1", .text(key))]
        case .renewGeneration(let renewal): [Query(renewal.statement(.postgreSQL))]
        case .recordAudit(let note, let author):
            [.insert([AuditEntry(note, by: author, at: now).values], into: .audit)]
        }
    }

    private static func delete(from table: StoredTable, where condition: String, _ parameter: Parameter) -> Query {
        Statement("delete_\(table)", "DELETE FROM \(table.rawValue) WHERE \(condition)")(parameter)
    }

    private static let unsetDefault = Statement(
        "unset_default_project", "UPDATE projects SET is_default = 0 WHERE is_default <> 0")
    /// Deletes all but the newest datafiles of a project and the newest one of an author.
    private static let prune = Statement(
        "prune_datafiles",
        """
        DELETE FROM datafiles WHERE sdk_key = $1
            AND version NOT IN (SELECT version FROM datafiles WHERE sdk_key = $1 ORDER BY version DESC LIMIT $2)
            AND version IS DISTINCT FROM (SELECT max(version) FROM datafiles WHERE sdk_key = $1 AND author = $3)
        """)
    private static let updateAttribute = Statement(
        "update_attribute", "UPDATE attributes SET definition = $2 WHERE number = $1")
}

/// The `attributes` and `attribute_removals` tables.
enum AttributeRows {
    static let names = Statement("attribute_names", "SELECT number, name FROM attributes")
    static let removals = Statement(
        "attribute_removals", "SELECT number, after_user_id FROM attribute_removals ORDER BY number LIMIT 1")
    static let advanceRemoval = Statement(
        "advance_attribute_removal",
        "UPDATE attribute_removals SET after_user_id = $2 WHERE number = $1 AND after_user_id < $2")
    static let endRemoval = Statement("end_attribute_removal", "DELETE FROM attribute_removals WHERE number = $1")
}

/// The `sticky_documents` table.
enum StickyDocumentRows {
    /// The documents of all attributes with a user's id.
    static let ofUsers = Statement(
        "sticky_documents_of_users",
        """
        SELECT attribute_value, attribute_name, assignments FROM sticky_documents WHERE attribute_value = ANY($1)
        ORDER BY attribute_name
        """)
    /// Of erased users.
    static let deleteAll = Statement(
        "delete_sticky_documents", "DELETE FROM sticky_documents WHERE attribute_value = ANY($1)")

    /// Creates an empty document, unless there is one.
    static func create(_ key: StickyDocumentKey) -> Query {
        statement(
            "create",
            """
            INSERT INTO sticky_documents (attribute_value, attribute_name, assignments) VALUES ($1, $2, '{}')
            ON CONFLICT (attribute_value, attribute_name) DO NOTHING
            """, key)
    }

    static func lock(_ key: StickyDocumentKey) -> Query {
        statement("lock", "\(SharedRecords.find(key).sql) FOR UPDATE", key)
    }

    static func delete(_ key: StickyDocumentKey) -> Query {
        statement(
            "delete", "DELETE FROM sticky_documents WHERE attribute_value = $1 AND attribute_name = $2", key)
    }

    private static func statement(_ verb: String, _ sql: String, _ key: StickyDocumentKey) -> Query {
        Statement("\(verb)_sticky_document", sql)(.text(key.attributeValue.string), .text(key.attributeName.string))
    }
}

import Bucketing
import Storage

/// Reads and writes what all users share, and sticky documents, for the rules in `Storage`.
extension WriteTransaction {
    /// Applies a change.
    ///
    /// - Returns: its result, and whether it deletes an attribute, whose values are to be deleted, too.
    func apply<Value>(
        _ change: SharedChange<Value>, _ settings: StoreSettings
    ) throws -> (value: Value, removesAttribute: Bool) {
        if let userID = change.userID { try expectNotErased(userID) }
        let now = now
        var records = SharedRecords()
        for part in change.parts { try read(part, into: &records) }
        let value = try change.rule(&records, RuleContext(settings.rules, at: now))
        for write in records.writes { try perform(write, keeping: settings.datafileHistory, at: now) }
        if records.writes.contains(where: \.changesProjects) { try changedProjects() }
        let removesAttribute = records.writes.contains { if case .deleteAttribute = $0 { true } else { false } }
        return (value, removesAttribute)
    }

    private func readLatestPeriods(
        _ condition: String, _ parameters: [SQLValue], into records: inout SharedRecords
    ) throws(SQLiteError) {
        func query(_ table: StoredTable) -> SQLQuery {
            let sql = """
                SELECT \(table.columnList) FROM \(table.rawValue) WHERE sdk_key = $1 \(condition) ORDER BY since, number
                """
            return SQLQuery("latest_\(table.rawValue)\(condition.isEmpty ? "" : "_of_one")", sql, parameters)
        }
        var periods: [AllocationPeriod.OfExperiment] = []
        try connection.run(query(.allocationPeriods)) { periods.append(AllocationPeriod.decode($0)) }
        for (experimentID, period) in periods { records.latestPeriods[experimentID] = period }
        var statuses: [StatusPeriod.OfExperiment] = []
        try connection.run(query(.statusPeriods)) { statuses.append(StatusPeriod.decode($0)) }
        for (experimentID, period) in statuses { records.latestStatuses[experimentID] = period }
    }

    private func read(_ part: SharedRecords.Part, into records: inout SharedRecords) throws(SQLiteError) {
        switch part {
        case .projects:
            records.newestDatafile = try newestDatafile()
            try connection.run(SharedRecords.allProjects) { records.projects.append(ProjectRecord($0)) }
        case .activeDatafile(let sdkKey):
            try connection.run(SharedRecords.datafileHistory(sdkKey: sdkKey, limit: 1)) {
                records.activeDatafile = StoredDatafile($0)
            }
        case .latestPeriods(let sdkKey, let experimentIDs):
            // A few are found one by one by the primary key.
            if experimentIDs.count > 100 { return try readLatestPeriods("", [.text(sdkKey)], into: &records) }
            for id in experimentIDs {
                let parameters: [SQLValue] = [.text(sdkKey), .text(id.string)]
                try readLatestPeriods("AND experiment_id = $2", parameters, into: &records)
            }
        case .series:
            try connection.run(SharedRecords.allSeries) {
                if let series = TrackedSeries($0) { records.series.append(series) }
            }
            records.newestSeries = try connection.integer("SELECT newest_series FROM counters")
            records.eventsSince = try connection.integer("SELECT events_since FROM counters")
        case .attribute(let name):
            records.newestAttribute = try connection.integer(
                "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'attributes'")
            try connection.run(SharedRecords.find(name, in: .attributes)) {
                records.attributes[name] = AttributeDefinition($0)
            }
        case .segment(let name):
            try connection.run(SharedRecords.find(name, in: .segments)) {
                records.segments[name] = Segment.conditions(stored: $0.text(1))
            }
        case .tallies(let experimentID):
            var tallies = TallySnapshot()
            for step in TallySnapshot.reading(experimentID, .sqlite) {
                try connection.run(step.query) { step.take($0, &tallies) }
            }
            records.tallies[experimentID] = tallies
        case .stickyDocument(let key, _):
            try connection.run(SharedRecords.find(key)) { records.stickyDocument = $0.text(0) }
        case .proposal(let id):
            try connection.run(SharedRecords.find(proposal: id)) { records.proposal = Proposal($0) }
        case .look(let sdkKey, let experimentID):
            try connection.run(SharedRecords.findLook(sdkKey: sdkKey, experimentID: experimentID)) {
                records.look = StoredLook($0)
            }
        case .finding(let sdkKey, let experimentID):
            try connection.run(SharedRecords.findFinding(sdkKey: sdkKey, experimentID: experimentID)) {
                records.finding = StoredLook($0)
            }
        case .webhook(let key):
            try connection.run(SharedRecords.find(webhook: key)) { records.webhooks[key] = Webhook($0) }
            try connection.run(SharedRecords.lastAuditEntry) { records.lastAuditEntry = $0.integer(0) }
        }
    }

    /// - Parameter count: how many datafiles of a project are kept.
    private func perform(_ write: SharedRecords.Write, keeping count: Int, at now: Timestamp) throws(SQLiteError) {
        switch write {
        case .putProject(let record):
            if record.isDefault {
                try connection.statement("UPDATE projects SET is_default = 0 WHERE is_default").run()
            }
            try insert(record.values, into: .projects)
        case .deleteProject(let sdkKey):
            for table in StoredTable.ofProject { try delete(from: table, where: "sdk_key = $1", .text(sdkKey)) }
        case .insertDatafile(let datafile):
            try insert(datafile.values, into: .datafiles)
            try prune(datafile.sdkKey, keeping: count)
        case .insertPeriods(let periods): try put(periods)
        case .insertStatuses(let statuses): try put(statuses)
        case .insertFrozenResults(let rows):
            for row in rows { try insert(row.values, into: .frozenResults) }
        case .putSeries(let series):
            try insert(series.values, into: .trackedSeries)
            forgetSeries()
        case .deleteSums(let sums, let number):
            let experimentID = SQLValue.text(sums.experimentID)
            for name in sums.names {
                try delete(from: .variationGoals, where: "experiment_id = $1 AND goal = $2", experimentID, .text(name))
            }
            for range in sums.ranges {
                let sql = "DELETE FROM variation_goals WHERE experiment_id = $1 AND goal >= $2 AND goal < $3"
                try run(
                    SQLQuery("delete_group_sums", sql, experimentID, .text(range.from), .text(range.to)))
            }
            if let number { try delete(from: .trackedSeries, where: "number = $1", .integer(number)) }
            forgetSeries()
        case .renumberSeries(let number):
            try connection.change("UPDATE counters SET newest_series = ?1", .integer(number))
            changed()
        case .insertAttribute(let definition): try insert(definition.values, into: .attributes)
        case .updateAttribute(let definition):
            try connection.change(
                "UPDATE attributes SET definition = ?2 WHERE number = ?1", .integer(Int(definition.number)),
                .text(definition.storedDocument))
        case .deleteAttribute(let definition):
            let number = SQLValue.integer(Int(definition.number))
            try delete(from: .attributes, where: "number = $1", number)
            try insert([number, .text("")], into: .attributeRemovals)
        case .putSegment(let segment): try insert(segment.values, into: .segments)
        case .deleteSegment(let name): try delete(from: .segments, where: "name = $1", .text(name))
        case .putStickyDocument(let document): try insert(document.values, into: .stickyDocuments)
        case .deleteStickyDocument(let key):
            try delete(
                from: .stickyDocuments, where: "attribute_value = $1 AND attribute_name = $2",
                .text(key.attributeValue), .text(key.attributeName))
        case .putLastUses(let uses): for use in uses { try insert(use.values, into: .lastUses) }
        case .insertProposal(let proposal):
            try insert(proposal.values, into: .proposals)
            try run(SharedRecords.pruneProposals(sdkKey: proposal.sdkKey))
        case .updateProposal(let proposal): try run(SharedRecords.update(proposal))
        case .putLook(let look): try insert(look.values, into: .banditLooks)
        case .putFinding(let finding): try insert(finding.values, into: .experimentFindings)
        case .putWebhook(let webhook): try insert(webhook.values, into: .webhooks)
        case .updateWebhook(let key, let state): try run(SharedRecords.update(webhook: key, state))
        case .deleteWebhook(let key): try delete(from: .webhooks, where: "key = $1", .text(key))
        case .renewGeneration(let renewal): try run(renewal.statement(.sqlite))
        case .recordAudit(let note, let author): try record(note, by: author, at: now)
        }
    }

    private func delete(
        from table: StoredTable, where condition: String, _ parameters: SQLValue...
    ) throws(SQLiteError) {
        try run(SQLQuery("delete_\(table)", "DELETE FROM \(table.rawValue) WHERE \(condition)", parameters))
    }

    /// The maximum number of datafiles that one transaction deletes, so that it does not delay other changes.
    private static let pruneLimit: Int64 = 100

    /// Deletes the oldest datafiles of a project.
    private func prune(_ sdkKey: String, keeping count: Int) throws(SQLiteError) {
        try connection.change(
            """
            DELETE FROM datafiles WHERE version IN (
                SELECT version FROM datafiles WHERE sdk_key = ?1
                AND version <= (SELECT version FROM datafiles WHERE sdk_key = ?1 ORDER BY version DESC LIMIT 1 OFFSET ?2)
                AND version IS NOT (SELECT max(version) FROM datafiles WHERE sdk_key = ?1 AND author = ?3)
                ORDER BY version LIMIT ?4)
            """, .text(sdkKey), .integer(max(1, count)), .text(Author.processUser.name), .integer(Self.pruneLimit))
    }
}

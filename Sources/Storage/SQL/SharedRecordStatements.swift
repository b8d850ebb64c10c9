import Bucketing
package import Chronology

// The statements by which databases read and write ``SharedRecords``. They neither take locks nor notify other
// processes: each store does both in its own way.

extension SharedRecords {
    /// A statement that reads, and a function that receives each of its rows.
    package typealias Step = (query: SQLQuery, take: (any Row, inout SharedRecords) -> Void)

    /// A statement that writes.
    package enum Statement {
        /// Inserts rows. If a row with the same key exists, ``StoredTable/conflict`` decides.
        case insert([[SQLValue]], into: StoredTable)
        case run(SQLQuery)
    }

    // MARK: Reading

    /// Returns the statements that read a part.
    package static func statements(_ part: Part, _ dialect: SQLDialect) -> [Step] {
        switch part {
        case .projects:
            [(allProjects, { $1.projects.append(ProjectRecord($0)) })]
                + newest(of: .datafiles, \.newestDatafile, dialect)
        case .activeDatafile(let sdkKey):
            [(datafileHistory(sdkKey: sdkKey, limit: 1), { $1.activeDatafile = StoredDatafile($0) })]
        case .latestPeriods(let sdkKey, let experimentIDs):
            latest(.allocationPeriods, sdkKey, experimentIDs) { row, records in
                let (experimentID, period) = AllocationPeriod.decode(row)
                records.latestPeriods[experimentID] = period
            }
                + latest(.statusPeriods, sdkKey, experimentIDs) { row, records in
                    let (experimentID, period) = StatusPeriod.decode(row)
                    records.latestStatuses[experimentID] = period
                }
        case .series:
            [
                (allSeries, { if let series = TrackedSeries($0) { $1.series.append(series) } }),
                (
                    SQLQuery("series_state", "SELECT newest_series, events_since FROM \(stateTable(dialect))"),
                    { ($1.newestSeries, $1.eventsSince) = ($0.bounded(0), $0.instant(1)) }
                ),
            ]
        case .attribute(let name):
            [(find(name, in: .attributes), { $1.attributes[name] = AttributeDefinition($0) })]
                + newest(of: .attributes, \.newestAttribute, dialect)
        case .segment(let name):
            [(find(name, in: .segments), { $1.segments[name] = Segment.conditions(stored: $0.text(1)) })]
        case .tallies(let experimentID):
            TallySnapshot.reading(experimentID, dialect).map { step in
                (step.query, { step.take($0, &$1.tallies[experimentID, default: TallySnapshot()]) })
            }
        case .stickyDocument(let key, _): [(find(key), { $1.stickyDocument = $0.text(0) })]
        case .proposal(let id): [(find(proposal: id), { $1.proposal = Proposal($0) })]
        case .look(let sdkKey, let experimentID):
            [(findLook(sdkKey: sdkKey, experimentID: experimentID), { $1.look = StoredLook($0) })]
        case .finding(let sdkKey, let experimentID):
            [(findFinding(sdkKey: sdkKey, experimentID: experimentID), { $1.finding = StoredLook($0) })]
        case .webhook(let key):
            [
                (find(webhook: key), { $1.webhooks[key] = Webhook($0) }),
                (lastAuditEntry, { $1.lastAuditEntry = $0.integer(0) }),
            ]
        }
    }

    /// Returns the statement that reads the last number that SQLite has assigned in a table. For PostgreSQL there is
    /// none, because its store reads this number from the row that it locks.
    ///
    /// - Parameter path: where the number is stored.
    private static func newest(
        of table: StoredTable, _ path: WritableKeyPath<SharedRecords, Int64>, _ dialect: SQLDialect
    ) -> [Step] {
        guard dialect == .sqlite else { return [] }
        let sql = "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = '\(table.rawValue)'"
        return [(SQLQuery("newest_\(table)", sql), { $1[keyPath: path] = $0.bounded(0) })]
    }

    /// The maximum number of experiments whose periods are read one by one. For more experiments, one statement reads
    /// the periods of all experiments of the project.
    private static let singleExperiments = 100

    /// Returns the statements that read the last period of each experiment.
    ///
    /// - Parameter take: receives the periods, in which the last period of an experiment comes last.
    private static func latest(
        _ table: StoredTable, _ sdkKey: String, _ experimentIDs: Set<Identifier>,
        take: @escaping (any Row, inout SharedRecords) -> Void
    ) -> [Step] {
        let select = "SELECT \(table.columnList) FROM \(table.rawValue) WHERE sdk_key = $1"
        guard experimentIDs.count <= singleExperiments else {
            return [(SQLQuery("latest_\(table)", "\(select) ORDER BY since, number", .text(sdkKey)), take)]
        }
        return experimentIDs.map { id in
            let sql = "\(select) AND experiment_id = $2 ORDER BY since DESC, number DESC LIMIT 1"
            return (SQLQuery("latest_\(table)_of_one", sql, .text(sdkKey), .text(id)), take)
        }
    }

    /// Returns the table whose only row has the counters of the database.
    private static func stateTable(_ dialect: SQLDialect) -> String {
        switch dialect {
        case .sqlite: "counters"
        case .postgreSQL: "project_state"
        }
    }

    // MARK: Writing

    /// Returns the statements that perform a write.
    ///
    /// - Parameter datafiles: the number of datafiles that are kept per project.
    package static func statements(
        _ write: Write, keeping datafiles: Int, at now: Instant, _ dialect: SQLDialect
    ) -> [Statement] {
        switch write {
        case .putProject(let record):
            (record.isDefault ? [.run(unsetDefault)] : []) + [.insert([record.values], into: .projects)]
        case .deleteProject(let sdkKey):
            StoredTable.ofProject.map { delete(from: $0, where: ["sdk_key": .text(sdkKey)]) }
        case .insertDatafile(let datafile, let body):
            replaceElements(of: datafile, by: body) + [.insert([datafile.values], into: .datafiles)]
                + prune(datafile.sdkKey, keeping: datafiles).map { .run($0) }
        case .insertPeriods(let periods):
            [.insert(periods.map { $0.period.values($0.experimentID) }, into: .allocationPeriods)]
        case .insertStatuses(let statuses):
            [.insert(statuses.map { $0.period.values($0.experimentID) }, into: .statusPeriods)]
        case .insertFrozenResults(let rows): [.insert(rows.map(\.values), into: .frozenResults)]
        case .putSeries(let series): [.insert([series.values], into: .trackedSeries)]
        case .deleteSums(let sums, let number):
            delete(sums, dialect)
                + (number.map { [delete(from: .trackedSeries, where: ["number": .integer($0)])] } ?? [])
        case .renumberSeries(let number):
            [
                .run(
                    SQLQuery(
                        "renumber_series", "UPDATE \(stateTable(dialect)) SET newest_series = $1", .integer(number)))
            ]
        case .insertAttribute(let definition): [.insert([definition.values], into: .attributes)]
        case .updateAttribute(let definition):
            [
                .run(
                    SQLQuery(
                        "update_attribute", "UPDATE attributes SET definition = $2 WHERE number = $1",
                        .integer(Int(definition.number)), .text(definition.storedDocument)))
            ]
        case .deleteAttribute(let definition):
            [
                delete(from: .attributes, where: ["number": .integer(Int(definition.number))]),
                // The empty id comes before all users: no user's value has been deleted yet.
                .insert([[.integer(Int(definition.number)), .text("")]], into: .attributeRemovals),
            ]
        case .putSegment(let segment): [.insert([segment.values], into: .segments)]
        case .deleteSegment(let name): [delete(from: .segments, where: ["name": .text(name)])]
        case .putStickyDocument(let document): [.insert([document.values], into: .stickyDocuments)]
        case .deleteStickyDocument(let key):
            [
                delete(
                    from: .stickyDocuments,
                    where: ["attribute_value": .text(key.attributeValue), "attribute_name": .text(key.attributeName)])
            ]
        case .putLastUses(let uses): [.insert(uses.map(\.values), into: .lastUses)]
        case .insertProposal(let proposal):
            [.insert([proposal.values], into: .proposals), .run(pruneProposals(sdkKey: proposal.sdkKey))]
        case .updateProposal(let proposal): [.run(update(proposal))]
        case .putLook(let look): [.insert([look.values], into: .banditLooks)]
        case .putFinding(let finding): [.insert([finding.values], into: .experimentFindings)]
        case .putWebhook(let webhook): [.insert([webhook.values], into: .webhooks)]
        case .updateWebhook(let key, let state): [.run(update(webhook: key, state))]
        case .deleteWebhook(let key): [delete(from: .webhooks, where: ["key": .text(key)])]
        case .renewGeneration(let renewal): [.run(renewal.statement(dialect))]
        case .recordAudit(let note, let author):
            [.insert([AuditEntry(note, by: author, at: now).values], into: .audit)]
        }
    }

    /// Returns the statement that deletes the rows with these values.
    private static func delete(
        from table: StoredTable, where values: KeyValuePairs<String, SQLValue>
    ) -> Statement {
        let condition = values.enumerated().map { "\($1.key) = $\($0 + 1)" }.joined(separator: " AND ")
        return .run(
            SQLQuery(
                "delete_\(table)_by_\(values.map(\.key).joined(separator: "_"))",
                "DELETE FROM \(table.rawValue) WHERE \(condition)", values.map(\.value)))
    }

    /// Returns the statements that delete the tallies of a series.
    private static func delete(_ sums: SeriesSums, _ dialect: SQLDialect) -> [Statement] {
        let table = dialect == .sqlite ? "variation_goals" : "tallies"
        let delete = "DELETE FROM \(table) WHERE experiment_id = $1 AND goal"
        let experimentID = SQLValue.text(sums.experimentID)
        return sums.names.map { .run(SQLQuery("delete_sums", "\(delete) = $2", experimentID, .text($0))) }
            + sums.ranges.map { range in
                .run(
                    SQLQuery(
                        "delete_group_sums", "\(delete) >= $2 AND goal < $3", experimentID, .text(range.from),
                        .text(range.to)))
            }
    }

    private static let unsetDefault = SQLQuery(
        "unset_default_project", "UPDATE projects SET is_default = 0 WHERE is_default <> 0")

    /// Returns the statements that store the elements of a datafile in parts: they end the replaced and removed
    /// elements, and insert the new ones. A whole datafile has no elements, so all elements end.
    private static func replaceElements(of datafile: StoredDatafile, by body: StoredDatafile.Body) -> [Statement] {
        let sdkKey = SQLValue.text(datafile.sdkKey)
        let version = SQLValue.integer(datafile.version)
        let end = "UPDATE definitions SET until = $2 WHERE sdk_key = $1 AND until IS NULL"
        let endAll = Statement.run(SQLQuery("end_elements", end, sdkKey, version))
        func insert(_ elements: [DatafileParts.Element]) -> [Statement] {
            let rows = elements.map { $0.values(datafile.sdkKey, version: datafile.version) }
            return rows.isEmpty ? [] : [.insert(rows, into: .definitions)]
        }
        switch body {
        case .whole: return [endAll]
        case .parts(let parts): return [endAll] + insert(parts.elements)
        case .change(let change):
            // A new element ends the former element of the same name, as a removal does.
            let ends = Set(change.removed + change.put.map(\.name)).sorted().map { name -> Statement in
                .run(
                    SQLQuery(
                        "end_element", "\(end) AND list = $3 AND key = $4", sdkKey, version, .text(name.list),
                        .text(name.key)))
            }
            return ends + insert(change.put)
        }
    }

    /// The maximum number of datafiles that one transaction deletes, so that it does not delay other changes.
    private static let pruneLimit = 100

    /// Returns the statements that delete the oldest datafiles of a project, and the elements that no kept datafile
    /// has; see ``Write/insertDatafile(_:_:)``.
    ///
    /// - Parameter count: the number of datafiles that are kept.
    private static func prune(_ sdkKey: String, keeping count: Int) -> [SQLQuery] {
        let datafiles = SQLQuery(
            "prune_datafiles",
            """
            DELETE FROM datafiles WHERE version IN (
                SELECT version FROM datafiles WHERE sdk_key = $1
                AND version <= (SELECT version FROM datafiles WHERE sdk_key = $1 ORDER BY version DESC LIMIT 1 OFFSET $2)
                AND version <> coalesce((SELECT max(version) FROM datafiles WHERE sdk_key = $1 AND author = $3), 0)
                ORDER BY version LIMIT $4)
            """, .text(sdkKey), .integer(max(1, count)), .text(Author.processUser.name), .integer(pruneLimit))
        // An element that ended at the oldest kept datafile in parts, or before it, is in no kept datafile. If no
        // datafile in parts is kept, no ended element is needed: the number in the SQL is the greatest of 64 bits.
        let elements = SQLQuery(
            "prune_elements",
            """
            DELETE FROM definitions WHERE sdk_key = $1 AND until <= coalesce(
                (SELECT min(version) FROM datafiles WHERE sdk_key = $1 AND base IS NOT NULL), 9223372036854775807)
            """, .text(sdkKey))
        return [datafiles, elements]
    }
}

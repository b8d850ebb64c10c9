package import Bucketing
public import Chronology
import Dispatch

extension StoreQuery<ProjectState?> {
    /// Reads the state of all projects; `nil` if it has not changed. It is small and rarely changes, so callers keep it
    /// in memory.
    ///
    /// - Parameters:
    ///   - changes: the ``ProjectState/changes`` of the known state; -1 if there is none.
    ///   - version: the greatest known version; only newer datafiles are read.
    ///   - elementsAfter: the version of which the reader knows all datafiles that are in parts. Of newer ones it gets the
    ///     change since then, if the store can tell; 0 for the whole.
    public static func projects(
        ifChangedSince changes: Int64, datafilesAfter version: Int64, elementsAfter: Int64 = 0
    ) -> Self {
        Self(.projects(ifChangedSince: changes, datafilesAfter: version)) { context in
            let sql = "SELECT \(countColumns(context.dialect)) WHERE changes <> $1"
            var hasChanged = false
            let query = SQLQuery("project_changes_since", sql, .integer(changes))
            return Reading([(query, { _ in hasChanged = true })]) {
                hasChanged ? .more(state(datafilesAfter: version, elementsAfter: elementsAfter, context)) : .value(nil)
            }
        }
    }

    private static func countColumns(_ dialect: SQLDialect) -> String {
        switch dialect {
        case .sqlite:
            """
            changes, newest_datafile FROM (SELECT project_changes AS changes,
                (SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'datafiles') AS newest_datafile
                FROM counters)
            """
        case .postgreSQL: "changes, newest_datafile FROM project_state"
        }
    }

    /// Reads all tables in one snapshot.
    private static func state(
        datafilesAfter version: Int64, elementsAfter: Int64, _ context: ReadingContext
    ) -> Reading<ProjectState?> {
        var state = ProjectState(
            changes: 0, projects: [], newestDatafile: 0, datafiles: [], forcedVariations: [], schema: .empty)
        var (attributes, segments): ([AttributeDefinition], [Segment]) = ([], [])
        let datafiles = SQLQuery(
            "active_datafiles",
            """
            SELECT \(StoredTable.datafiles.columnList) FROM datafiles
            WHERE version > $1 AND version IN (SELECT max(version) FROM datafiles GROUP BY sdk_key) ORDER BY version
            """, .integer(version))
        // What ended before the oldest datafile that is kept is deleted. So the change since a version is known of projects that
        // still have a datafile from then, or an older one.
        let comparable = "SELECT DISTINCT sdk_key FROM datafiles WHERE base IS NOT NULL AND version <= $1"
        let elements = "SELECT \(DatafileParts.Element.columns), sdk_key FROM definitions WHERE until IS NULL"
        let newElements = SQLQuery(
            "new_elements",
            "\(elements) AND version > $1 AND sdk_key IN (SELECT sdk_key FROM datafiles WHERE version > $2)",
            .integer(elementsAfter), .integer(version))
        let olderElements = SQLQuery(
            "older_elements",
            """
            \(elements) AND version <= $1
                AND sdk_key IN (SELECT sdk_key FROM datafiles WHERE version > $2 EXCEPT \(comparable))
            """, .integer(elementsAfter), .integer(version))
        let ended = SQLQuery(
            "ended_elements",
            """
            SELECT list, key, sdk_key FROM definitions
            WHERE until > $1 AND sdk_key IN (SELECT sdk_key FROM datafiles WHERE version > $2)
            """, .integer(elementsAfter == 0 ? .max : elementsAfter), .integer(version))
        var compared: Set<String> = []
        var put: [String: [DatafileParts.Element]] = [:]
        var removed: [String: [DatafileParts.Name]] = [:]
        return Reading([
            (
                SQLQuery("project_changes", "SELECT \(countColumns(context.dialect))"),
                { (state.changes, state.newestDatafile) = ($0.bounded(0), $0.bounded(1)) }
            ),
            (
                FeedState.generation,
                { row in
                    state.generation = StoreGeneration(storeID: row.integer(0), epoch: row.integer(1))
                    state.formerEpochs = Set(row.text(2).split(separator: ",").compactMap { Int64($0, radix: 16) })
                }
            ),
            (datafiles, { state.datafiles.append(StoredDatafile($0)) }),
            (SQLQuery("comparable_projects", comparable, .integer(elementsAfter)), { compared.insert($0.text(0)) }),
            (newElements, { put[$0.text(4), default: []].append(.init($0)) }),
            (olderElements, { put[$0.text(4), default: []].append(.init($0)) }),
            (ended, { removed[$0.text(2), default: []].append(.init(list: $0.identifier(0), key: $0.identifier(1))) }),
            (SharedRecords.allProjects, { state.projects.append(ProjectRecord($0)) }),
            (SharedRecords.all(.forcedVariations), { state.forcedVariations.append(ForcedVariation($0)) }),
            (
                SharedRecords.all(.attributes),
                { if let attribute = AttributeDefinition($0) { attributes.append(attribute) } }
            ),
            (SharedRecords.all(.segments), { if let segment = Segment($0) { segments.append(segment) } }),
        ]) {
            state.schema = AttributeSchema(attributes: attributes, segments: segments)
            for index in state.datafiles.indices {
                guard case .parts(let parts) = state.datafiles[index].body else { continue }
                let sdkKey = state.datafiles[index].sdkKey
                let (put, removed) = (put[sdkKey] ?? [], removed[sdkKey] ?? [])
                state.datafiles[index].body =
                    compared.contains(sdkKey)
                    ? .change(.init(base: parts.base, removed: removed, put: put))
                    : .parts(DatafileParts(base: parts.base, elements: put))
            }
            // Decisions by a datafile must not have a time before it.
            if let newest = state.datafiles.map(\.storedAt).max() { context.clock.advance(to: newest) }
            return .value(state)
        }
    }
}

extension StoreQuery<[UserRemoval]> {
    /// Reads the users whom any process has recently erased or merged. A user may occur more than once.
    ///
    /// - Parameter time: the greatest known ``UserRemoval/time``; only later ones need to be read.
    public static func removals(after time: Int64) -> Self {
        Self(.removals(after: time)) { context in
            let query =
                switch context.dialect {
                // Times later than now were recorded before the machine was restarted.
                case .sqlite:
                    SQLQuery(
                        "removals",
                        "SELECT user_hash, erased_at FROM erasures WHERE erased_at > $1 AND erased_at <= $2",
                        .integer(time), .integer(Int64(clamping: DispatchTime.now().uptimeNanoseconds)))
                // In microseconds. A transaction that began before others may have been committed after them.
                case .postgreSQL:
                    SQLQuery(
                        "removals",
                        """
                        SELECT user_hash, (extract(epoch FROM erased_at) * 1000000)::bigint FROM erasures
                        WHERE erased_at > to_timestamp($1::bigint / 1000000.0::float8) - make_interval(secs => $2)
                        """, .integer(time), .double(context.longestTransaction))
                }
            return .all(query) { UserRemoval(mark: $0.integer(0), time: $0.integer(1)) }
        }
    }
}

extension StoreQuery<[StoredDatafile]> {
    /// Reads the last datafiles of a project, newest first, without their content.
    public static func datafileHistory(sdkKey: String, limit: Int) -> Self {
        Self(.datafileHistory(sdkKey: sdkKey, limit: limit)) { _ in
            .all(SharedRecords.datafileHistory(sdkKey: sdkKey, limit: limit)) { StoredDatafile($0) }
        }
    }
}

extension SharedRecords {
    package static func datafileHistory(sdkKey: String, limit: Int) -> SQLQuery {
        SQLQuery(
            "datafile_history",
            """
            SELECT \(StoredDatafile.columnsWithoutContent) FROM datafiles
            WHERE sdk_key = $1 ORDER BY version DESC LIMIT $2
            """, .text(sdkKey), .integer(limit))
    }

    package static var allSeries: SQLQuery { all(.trackedSeries, "ORDER BY number") }

    package static var allProjects: SQLQuery { all(.projects, "ORDER BY sdk_key") }

    fileprivate static func all(_ table: StoredTable, _ rest: String = "") -> SQLQuery {
        SQLQuery("all_\(table)", "SELECT \(table.columnList) FROM \(table.rawValue) \(rest)")
    }

    /// Finds an attribute or a segment.
    package static func find(_ name: Identifier, in table: StoredTable) -> SQLQuery {
        SQLQuery(
            "find_\(table)", "SELECT \(table.columnList) FROM \(table.rawValue) WHERE name = $1", .text(name))
    }

    /// Finds the content of a sticky document.
    package static func find(_ key: StickyDocumentKey) -> SQLQuery {
        SQLQuery(
            "find_sticky_document",
            "SELECT assignments FROM sticky_documents WHERE attribute_value = $1 AND attribute_name = $2",
            .text(key.attributeValue), .text(key.attributeName))
    }
}

extension StoreQuery<StoredDatafile?> {
    /// Reads the datafile of a project that was active at a time; `nil` if there was none, or if it is no longer kept.
    public static func datafile(sdkKey: String, activeAt time: Instant) -> Self {
        Self(.activeDatafile(sdkKey: sdkKey, at: time)) { context in
            // If older datafiles have been deleted, it is unknown which one was active before those that are kept.
            first(
                "datafile_active_at",
                """
                AS found WHERE sdk_key = $1 AND stored_at <= $2
                    AND (SELECT count(*) FROM datafiles WHERE sdk_key = $1 AND version > found.version) < $3
                ORDER BY version DESC LIMIT 1
                """, .text(sdkKey), .instant(time), .integer(context.datafileHistory))
        }
    }

    /// Reads a datafile of a project by its version; `nil` if there was none, or if it is no longer kept.
    public static func datafile(sdkKey: String, version: Int64) -> Self {
        Self(.datafile(sdkKey: sdkKey, version: version)) { _ in
            first("datafile_version", "WHERE version = $1 AND sdk_key = $2", .integer(version), .text(sdkKey))
        }
    }

    /// Reads the last datafile of a project that an author activated, if any.
    public static func lastDatafile(sdkKey: String, by author: Author) -> Self {
        Self(.lastDatafile(sdkKey: sdkKey, author: author.name)) { _ in
            first(
                "last_datafile", "WHERE sdk_key = $1 AND author = $2 ORDER BY version DESC LIMIT 1", .text(sdkKey),
                .text(author.name))
        }
    }

    private static func first(_ name: String, _ rest: String, _ parameters: SQLValue...) -> Reading<StoredDatafile?> {
        var found: StoredDatafile?
        var elements: [DatafileParts.Element] = []
        let datafile = SQLQuery(
            name, "SELECT \(StoredTable.datafiles.columnList) FROM datafiles \(rest)", parameters)
        let ofDatafile = SQLQuery(
            "\(name)_elements",
            """
            SELECT \(DatafileParts.Element.columns) FROM definitions
            JOIN (SELECT sdk_key AS project, version AS shown, base IS NOT NULL AS in_parts FROM datafiles \(rest)) AS datafile
                ON sdk_key = project AND version <= shown AND (until IS NULL OR until > shown)
            WHERE in_parts
            """, parameters)
        return Reading([
            (datafile, { found = StoredDatafile($0) }), (ofDatafile, { elements.append(.init($0)) }),
        ]) {
            if case .parts(let parts) = found?.body {
                found?.body = .parts(DatafileParts(base: parts.base, elements: elements))
            }
            return .value(found)
        }
    }
}

extension StoreQuery<[AuditEntry]> {
    /// Finds entries of the audit log, newest first.
    public static func auditEntries(_ query: AuditQuery) -> Self {
        Self(.auditEntries(query)) { _ in
            let sql = """
                SELECT \(StoredTable.audit.columnList) FROM audit
                WHERE ($1 IS NULL OR author = $1) AND ($2 IS NULL OR action = $2) AND ($3 IS NULL OR user_id = $3)
                    AND ($4 IS NULL OR target = $4) AND ($5 IS NULL OR recorded_at >= $5)
                    AND ($6 IS NULL OR recorded_at < $6) AND ($7 IS NULL OR id < $7)
                ORDER BY id DESC LIMIT $8
                """
            var reading = Reading<[AuditEntry]>.all(
                SQLQuery(
                    "find_audit", sql, .text(query.author), .text(query.action?.rawValue),
                    .text(query.userID), .text(query.target), .instant(query.since), .instant(query.until),
                    .integer(query.after), .integer(query.limit))
            ) { AuditEntry($0) }
            // The best index depends on the parameters.
            reading.dependsOnValues = true
            return reading
        }
    }
}

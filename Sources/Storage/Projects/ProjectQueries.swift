package import Bucketing
public import Chronology

extension StoreQuery<ProjectState?> {
    /// Reads the state of all projects; `nil` if it has not changed. The state is small and rarely changes, so callers
    /// keep it in memory.
    ///
    /// - Parameters:
    ///   - changes: the ``ProjectState/changes`` of the state that the caller knows; -1 if there is none.
    ///   - version: the greatest datafile version that the caller knows. Only newer datafiles are read.
    ///   - elementsAfter: the version up to which the caller knows the elements of all datafiles in parts; 0 if it
    ///     knows none. For a newer datafile in parts, only the changed elements are read if the store still has the
    ///     change.
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

    /// The columns `changes` and `newest_datafile`, with the tables that have them.
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

    /// Reads all tables of the state in one snapshot.
    private static func state(
        datafilesAfter version: Int64, elementsAfter: Int64, _ context: ReadingContext
    ) -> Reading<ProjectState?> {
        var state = ProjectState(
            changes: 0, projects: [], newestDatafile: 0, datafiles: [], forcedVariations: [], schema: .empty)
        var attributes: [AttributeDefinition] = []
        var segments: [Segment] = []
        let datafiles = SQLQuery(
            "active_datafiles",
            """
            SELECT \(StoredTable.datafiles.columnList) FROM datafiles
            WHERE version > $1 AND version IN (SELECT max(version) FROM datafiles GROUP BY sdk_key) ORDER BY version
            """, .integer(version))
        let queries = ElementQueries(datafilesAfter: version, elementsAfter: elementsAfter)
        var elements = ChangedElements()
        return Reading([
            (
                SQLQuery("project_changes", "SELECT \(countColumns(context.dialect))"),
                { row in
                    state.changes = row.bounded(0)
                    state.newestDatafile = row.bounded(1)
                }
            ),
            (
                FeedState.generation,
                { row in
                    state.generation = StoreGeneration(storeID: row.integer(0), epoch: row.integer(1))
                    state.formerEpochs = Set(row.text(2).split(separator: ",").compactMap { Int64($0, radix: 16) })
                }
            ),
            (datafiles, { state.datafiles.append(StoredDatafile($0)) }),
            (queries.comparable, { elements.comparable.insert($0.text(0)) }),
            (queries.new, { elements.put[$0.text(5), default: []].append(.init($0)) }),
            (queries.older, { elements.put[$0.text(5), default: []].append(.init($0)) }),
            (
                queries.ended,
                { row in
                    let name = DatafileParts.Name(list: row.identifier(0), key: row.identifier(1))
                    elements.removed[row.text(2), default: []].append(name)
                }
            ),
            (SharedRecords.allProjects, { state.projects.append(ProjectRecord($0)) }),
            (SharedRecords.all(.forcedVariations), { state.forcedVariations.append(ForcedVariation($0)) }),
            (
                SharedRecords.all(.attributes),
                { if let attribute = AttributeDefinition($0) { attributes.append(attribute) } }
            ),
            (SharedRecords.all(.segments), { if let segment = Segment($0) { segments.append(segment) } }),
        ]) {
            state.schema = AttributeSchema(attributes: attributes, segments: segments)
            for index in state.datafiles.indices { elements.complete(&state.datafiles[index]) }
            // A decision with a datafile must not have a time before the datafile was stored.
            if let newest = state.datafiles.map(\.storedAt).max() { context.clock.advance(to: newest) }
            return .value(state)
        }
    }
}

/// The statements that read the elements of active datafiles in parts. For a project whose former elements the caller
/// knows, they read only the changes.
private struct ElementQueries {
    /// Selects the projects of which the change since the known version can be read. Elements that ended before the
    /// oldest kept datafile have been deleted. The change is therefore known for a project that still has a datafile of
    /// the known version, or an older one.
    let comparable: SQLQuery
    /// Selects the elements that were added or replaced since the known version.
    let new: SQLQuery
    /// Selects the older elements, for projects that are not comparable.
    let older: SQLQuery
    /// Selects the names of the elements that were removed or replaced since the known version.
    let ended: SQLQuery

    /// - Parameters:
    ///   - version: elements are only read for projects with a newer datafile.
    ///   - elementsAfter: the known version; 0 if none is known.
    init(datafilesAfter version: Int64, elementsAfter: Int64) {
        let comparableSQL = "SELECT DISTINCT sdk_key FROM datafiles WHERE base IS NOT NULL AND version <= $1"
        let elements = "SELECT \(DatafileParts.Element.columns), sdk_key FROM definitions WHERE until IS NULL"
        comparable = SQLQuery("comparable_projects", comparableSQL, .integer(elementsAfter))
        new = SQLQuery(
            "new_elements",
            "\(elements) AND version > $1 AND sdk_key IN (SELECT sdk_key FROM datafiles WHERE version > $2)",
            .integer(elementsAfter), .integer(version))
        older = SQLQuery(
            "older_elements",
            """
            \(elements) AND version <= $1
                AND sdk_key IN (SELECT sdk_key FROM datafiles WHERE version > $2 EXCEPT \(comparableSQL))
            """, .integer(elementsAfter), .integer(version))
        // A caller that knows no elements needs none of the ended ones.
        ended = SQLQuery(
            "ended_elements",
            """
            SELECT list, key, sdk_key FROM definitions
            WHERE until > $1 AND sdk_key IN (SELECT sdk_key FROM datafiles WHERE version > $2)
            """, .integer(elementsAfter == 0 ? .max : elementsAfter), .integer(version))
    }
}

/// The elements that ``ElementQueries`` have read, by SDK key.
private struct ChangedElements {
    /// The projects whose elements are read as a change.
    var comparable: Set<String> = []
    var put: [String: [DatafileParts.Element]] = [:]
    var removed: [String: [DatafileParts.Name]] = [:]

    /// Adds the elements to a datafile in parts: as the change if its project is comparable, or else all of them.
    func complete(_ datafile: inout StoredDatafile) {
        guard case .parts(let parts) = datafile.body else { return }
        let put = put[datafile.sdkKey] ?? []
        if comparable.contains(datafile.sdkKey) {
            let removed = removed[datafile.sdkKey] ?? []
            datafile.body = .change(.init(base: parts.base, removed: removed, put: put))
        } else {
            datafile.body = .parts(DatafileParts(base: parts.base, elements: put))
        }
    }
}

extension StoreQuery<[StoredDatafile]> {
    /// Reads the last datafiles of a project, newest first, without their content.
    ///
    /// - Parameter limit: the maximum number of datafiles.
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

    /// Selects all rows of a table.
    ///
    /// - Parameter rest: the end of the statement, such as an order.
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
            // The datafile that was active at the time may have been deleted while an older one is kept: the last
            // datafile of the process user always stays. The older one must not be found in its place. Only the newest
            // datafiles are therefore searched, as many as the store keeps.
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

    /// Reads the last datafile of a project that an author activated; `nil` if there is none.
    public static func lastDatafile(sdkKey: String, by author: Author) -> Self {
        Self(.lastDatafile(sdkKey: sdkKey, author: author.name)) { _ in
            first(
                "last_datafile", "WHERE sdk_key = $1 AND author = $2 ORDER BY version DESC LIMIT 1", .text(sdkKey),
                .text(author.name))
        }
    }

    /// Reads one datafile with its elements.
    ///
    /// - Parameters:
    ///   - name: the name of the statement.
    ///   - rest: the end of the statement, which selects the row in `datafiles`.
    private static func first(_ name: String, _ rest: String, _ parameters: SQLValue...) -> Reading<StoredDatafile?> {
        var found: StoredDatafile?
        var elements: [DatafileParts.Element] = []
        let datafile = SQLQuery(
            name, "SELECT \(StoredTable.datafiles.columnList) FROM datafiles \(rest)", parameters)
        let elementsQuery = SQLQuery(
            "\(name)_elements",
            """
            SELECT \(DatafileParts.Element.columns) FROM definitions
            JOIN (SELECT sdk_key AS project, version AS shown, base IS NOT NULL AS in_parts FROM datafiles \(rest)) AS datafile
                ON sdk_key = project AND version <= shown AND (until IS NULL OR until > shown)
            WHERE in_parts
            """, parameters)
        return Reading([
            (datafile, { found = StoredDatafile($0) }), (elementsQuery, { elements.append(.init($0)) }),
        ]) {
            if case .parts(let parts) = found?.body {
                found?.body = .parts(DatafileParts(base: parts.base, elements: elements))
            }
            return .value(found)
        }
    }
}

public import Bucketing
public import Chronology
public import JSON

/// The last analysis of an experiment's results by a background job (a "look"), stored outside of the definitions.
/// There are two kinds, each in a table of its own:
///
/// - **Looks of a bandit** that have not changed the weights. A look that changes the weights is stored in the
///   definitions instead.
/// - **Findings of the experiment monitor**. All processes run the monitor. The stored findings let the process that
///   first notices a change report it, and keep the others from reporting it again.
public struct StoredLook: Sendable, Equatable {
    public var sdkKey: String
    public var experimentID: Identifier
    /// When the look began.
    public var lookedAt: Instant
    /// The result of the look. For the monitor these are the warnings and the verdict.
    public var content: JSONValue

    public init(sdkKey: String, experimentID: Identifier, lookedAt: Instant, content: JSONValue) {
        self.sdkKey = sdkKey
        self.experimentID = experimentID
        self.lookedAt = lookedAt
        self.content = content
    }
}

extension SharedChange<Bool> {
    /// Stores a look of a bandit in place of the former look, with its audit entry. The result is `false` if another
    /// process has stored a look since.
    ///
    /// - Parameter former: the time of the former look that must be stored; `nil` if there must be none.
    public static func putLook(
        _ look: StoredLook, after former: Instant?, _ note: AuditNote, by author: Author
    ) -> Self {
        Self(.look(sdkKey: look.sdkKey, experimentID: look.experimentID)) { records, _ in
            guard records.look?.lookedAt == former else { return false }
            records.write(.putLook(look))
            var note = note
            note.sdkKey = look.sdkKey
            records.record(note, by: author)
            return true
        }
    }

    /// Stores findings of the monitor in place of the former findings, with their audit entries. The result is `false`
    /// if another process has stored other findings, or findings of a later look.
    ///
    /// - Parameter former: the content of the former findings that must be stored; `nil` if there must be none.
    public static func putFinding(
        _ finding: StoredLook, after former: JSONValue?, _ notes: [AuditNote], by author: Author
    ) -> Self {
        Self(.finding(sdkKey: finding.sdkKey, experimentID: finding.experimentID)) { records, _ in
            let isExpected = records.finding?.content == former
            let isLater = records.finding.map { $0.lookedAt < finding.lookedAt } ?? true
            guard isExpected, isLater else { return false }
            records.write(.putFinding(finding))
            for note in notes { records.record(note, by: author) }
            return true
        }
    }
}

extension StoreQuery<[StoredLook]> {
    /// Reads the last look of each bandit in a project.
    public static func looks(sdkKey: String) -> Self {
        Self(.looks(sdkKey: sdkKey)) { _ in
            let sql = "SELECT \(StoredTable.banditLooks.columnList) FROM bandit_looks WHERE sdk_key = $1"
            return .all(SQLQuery("bandit_looks", sql, .text(sdkKey))) { StoredLook($0) }
        }
    }

    /// Reads the last findings in each experiment of all projects.
    public static var findings: Self {
        Self(.findings) { _ in
            let sql = "SELECT \(StoredTable.experimentFindings.columnList) FROM experiment_findings"
            return .all(SQLQuery("experiment_findings", sql)) { StoredLook($0) }
        }
    }
}

extension SharedRecords {
    package static func findLook(sdkKey: String, experimentID: Identifier) -> SQLQuery {
        let columns = StoredTable.banditLooks.columnList
        return SQLQuery(
            "find_bandit_look", "SELECT \(columns) FROM bandit_looks WHERE sdk_key = $1 AND experiment_id = $2",
            .text(sdkKey), .text(experimentID))
    }

    package static func findFinding(sdkKey: String, experimentID: Identifier) -> SQLQuery {
        let columns = StoredTable.experimentFindings.columnList
        return SQLQuery(
            "find_experiment_finding",
            "SELECT \(columns) FROM experiment_findings WHERE sdk_key = $1 AND experiment_id = $2",
            .text(sdkKey), .text(experimentID))
    }
}

extension StoredLook {
    package init(_ row: any Row) {
        self.init(
            sdkKey: row.text(0), experimentID: row.identifier(1), lookedAt: row.instant(2),
            content: (try? JSONParser().parse(row.text(3))) ?? .null)
    }

    package var values: [SQLValue] {
        [
            .text(sdkKey), .text(experimentID), .instant(lookedAt),
            .text(String(decoding: content.encoded(), as: UTF8.self)),
        ]
    }
}

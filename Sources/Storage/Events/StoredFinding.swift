public import Bucketing
public import JSON

/// What the monitor of experiments has found last in one of them, so that each change of it is told once, whichever
/// process sees it first.
public struct StoredFinding: Sendable, Equatable {
    public var sdkKey: String
    public var experimentID: Identifier
    /// When the look began that found it.
    public var lookedAt: Timestamp
    /// Warnings and verdict.
    public var content: JSONValue

    public init(sdkKey: String, experimentID: Identifier, lookedAt: Timestamp, content: JSONValue) {
        self.sdkKey = sdkKey
        self.experimentID = experimentID
        self.lookedAt = lookedAt
        self.content = content
    }
}

extension SharedChange<Bool> {
    /// Stores a finding with what the audit log says about it. The result is false if another process has stored one since:
    /// of a later look, or the same one.
    ///
    /// - Parameter former: the content that was stored; `nil` for nothing.
    public static func putFinding(
        _ finding: StoredFinding, after former: JSONValue?, _ notes: [AuditNote], by author: Author
    ) -> Self {
        Self(.finding(sdkKey: finding.sdkKey, experimentID: finding.experimentID)) { records, _ in
            guard records.finding?.content == former, records.finding.map({ $0.lookedAt < finding.lookedAt }) ?? true
            else { return false }
            records.write(.putFinding(finding))
            for note in notes { records.record(note, by: author) }
            return true
        }
    }
}

extension StoreQuery<[StoredFinding]> {
    /// Reads what was found last in the experiments of all projects.
    public static var findings: Self {
        Self(.findings) { _ in
            let sql = "SELECT \(StoredTable.experimentFindings.columnList) FROM experiment_findings"
            return .all(SQLQuery("experiment_findings", sql)) { StoredFinding($0) }
        }
    }
}

extension SharedRecords {
    package static func findFinding(sdkKey: String, experimentID: Identifier) -> SQLQuery {
        let columns = StoredTable.experimentFindings.columnList
        return SQLQuery(
            "find_experiment_finding",
            "SELECT \(columns) FROM experiment_findings WHERE sdk_key = $1 AND experiment_id = $2",
            .text(sdkKey), .text(experimentID))
    }
}

extension StoredFinding {
    package init(_ row: any Row) {
        self.init(
            sdkKey: row.text(0), experimentID: row.identifier(1), lookedAt: row.bounded(2),
            content: (try? JSONParser().parse(row.text(3))) ?? .null)
    }

    package var values: [SQLValue] {
        [
            .text(sdkKey), .text(experimentID), .integer(lookedAt),
            .text(String(decoding: content.encoded(), as: UTF8.self)),
        ]
    }
}

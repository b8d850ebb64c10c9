public import Bucketing
public import JSON

/// The last look of an experiment's bandit at its users that left the weights as they were. One that changes them is in the
/// definitions.
public struct StoredLook: Sendable, Equatable {
    public var sdkKey: String
    public var experimentID: Identifier
    public var lookedAt: Timestamp
    /// What came of it.
    public var content: JSONValue

    public init(sdkKey: String, experimentID: Identifier, lookedAt: Timestamp, content: JSONValue) {
        self.sdkKey = sdkKey
        self.experimentID = experimentID
        self.lookedAt = lookedAt
        self.content = content
    }
}

extension SharedChange<Bool> {
    /// Stores a look in place of the former one. The result is false if another process has looked since.
    ///
    /// - Parameter former: when the former look was; `nil` if there was none.
    public static func putLook(
        _ look: StoredLook, after former: Timestamp?, _ note: AuditNote, by author: Author
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
}

extension StoreQuery<[StoredLook]> {
    /// Reads the looks of a project's bandits.
    public static func looks(sdkKey: String) -> Self {
        Self(.looks(sdkKey: sdkKey)) { _ in
            let sql = "SELECT \(StoredTable.banditLooks.columnList) FROM bandit_looks WHERE sdk_key = $1"
            return .all(SQLQuery("bandit_looks", sql, .text(sdkKey))) { StoredLook($0) }
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
}

extension StoredLook {
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

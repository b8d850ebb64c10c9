import Bucketing
import JSON
import Storage

/// The `segments` table.
enum SegmentRows {
    static func all(on connection: Connection) throws(SQLiteError) -> [Segment] {
        var segments: [Segment] = []
        try connection.statement("SELECT name, conditions FROM segments").run(row: { row in
            guard let conditions = try? JSONParser(maximumDepth: 128).parse(row.text(1)) else { return }
            segments.append(Segment(name: Identifier(row.text(0)), conditions: conditions))
        })
        return segments
    }

    /// The conditions of a segment.
    static func find(_ name: Identifier, on connection: Connection) throws(SQLiteError) -> JSONValue? {
        var conditions: JSONValue?
        try connection.statement("SELECT conditions FROM segments WHERE name = ?1").run {
            $0.bind(name.string, at: 1)
        } row: {
            conditions = (try? JSONParser(maximumDepth: 128).parse($0.text(0))) ?? .null
        }
        return conditions
    }

    static func put(_ segment: Segment, in transaction: WriteTransaction) throws(SQLiteError) {
        let conditions = String(decoding: segment.conditions.encoded(), as: UTF8.self)
        try transaction.connection.statement("INSERT OR REPLACE INTO segments (name, conditions) VALUES (?1, ?2)").run {
            $0.bind(segment.name.string, at: 1)
            $0.bind(conditions, at: 2)
        }
        try transaction.changedProjects()
    }

    static func remove(_ name: Identifier, in transaction: WriteTransaction) throws(SQLiteError) {
        try transaction.connection.statement("DELETE FROM segments WHERE name = ?1").run { $0.bind(name.string, at: 1) }
        try transaction.changedProjects()
    }
}

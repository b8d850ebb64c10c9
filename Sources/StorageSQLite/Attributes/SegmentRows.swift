import Bucketing
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

    /// - Returns: whether the segment is new.
    static func put(_ segment: Segment, in transaction: WriteTransaction) throws(SQLiteError) -> Bool {
        let conditions = String(decoding: segment.conditions.encoded(), as: UTF8.self)
        var former: String?
        try transaction.connection.statement("SELECT conditions FROM segments WHERE name = ?1").run {
            $0.bind(segment.name.string, at: 1)
        } row: {
            former = $0.text(0)
        }
        if let former, former.utf8.elementsEqual(conditions.utf8) { return false }
        try transaction.connection.statement("INSERT OR REPLACE INTO segments (name, conditions) VALUES (?1, ?2)").run {
            $0.bind(segment.name.string, at: 1)
            $0.bind(conditions, at: 2)
        }
        try transaction.changedProjects()
        return former == nil
    }

    /// - Returns: whether there was one.
    static func remove(_ name: Identifier, in transaction: WriteTransaction) throws(SQLiteError) -> Bool {
        var found = false
        try transaction.connection.statement("DELETE FROM segments WHERE name = ?1 RETURNING 1").run {
            $0.bind(name.string, at: 1)
        } row: { _ in
            found = true
        }
        if found { try transaction.changedProjects() }
        return found
    }
}

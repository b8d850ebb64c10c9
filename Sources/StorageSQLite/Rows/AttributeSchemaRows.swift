import Bucketing
import JSON
import Storage

/// The `attributes` table.
enum AttributeSchemaRows {
    static func all(on connection: Connection) throws(SQLiteError) -> [AttributeDefinition] {
        // A definition of a newer release is skipped as if it did not exist.
        try connection.statement("SELECT number, name, definition FROM attributes").all(row: decode)
    }

    static func find(_ name: Identifier, on connection: Connection) throws(SQLiteError) -> AttributeDefinition? {
        try connection.statement("SELECT number, name, definition FROM attributes WHERE name = ?1").first {
            $0.bind(name.string, at: 1)
        } row: {
            decode($0)
        }
    }

    static func numbers(on connection: Connection) throws(SQLiteError) -> Set<UInt32> {
        Set(try connection.statement("SELECT number FROM attributes").all { UInt32(clamping: $0.integer(0)) })
    }

    static func isDefined(_ number: UInt32, on connection: Connection) throws(SQLiteError) -> Bool {
        try connection.statement("SELECT 1 FROM attributes WHERE number = ?1").first {
            $0.bind(Int64(number), at: 1)
        } row: { _ in
            true
        } ?? false
    }

    /// Stores what the rules decided about a definition.
    ///
    /// - Returns: the result with the stored definition.
    static func put(
        _ result: AttributeDefinitionResult, in transaction: WriteTransaction
    ) throws(SQLiteError) -> AttributeDefinitionResult {
        switch result {
        case .created(let wanted):
            return .created(wanted.numbered(try insert(wanted, on: transaction)))
        case .changed(let definition):
            try transaction.connection.statement("UPDATE attributes SET definition = ?2 WHERE number = ?1").run {
                $0.bind(Int64(definition.number), at: 1)
                $0.bind(encoded(definition), at: 2)
            }
            try transaction.changedProjects()
            return result
        case .unchanged, .otherType:
            return result
        }
    }

    private static func insert(
        _ definition: AttributeDefinition, on transaction: WriteTransaction
    ) throws(SQLiteError) -> UInt32 {
        var number: UInt32 = 0
        try transaction.connection.statement(
            "INSERT INTO attributes (name, definition) VALUES (?1, ?2) RETURNING number"
        ).run {
            $0.bind(definition.name.string, at: 1)
            $0.bind(encoded(definition), at: 2)
        } row: {
            number = UInt32(clamping: $0.integer(0))
        }
        try transaction.changedProjects()
        return number
    }

    private static func encoded(_ definition: AttributeDefinition) -> String {
        String(decoding: definition.document.encoded(), as: UTF8.self)
    }

    /// Removes an attribute from the schema; ``AttributeRemoval`` deletes its values.
    ///
    /// - Returns: the attribute, if it existed.
    static func remove(
        _ name: Identifier, in transaction: WriteTransaction
    ) throws(SQLiteError) -> AttributeDefinition? {
        guard let former = try find(name, on: transaction.connection) else { return nil }
        for sql: StaticString in [
            "DELETE FROM attributes WHERE number = ?1",
            "INSERT INTO attribute_removals (number, after_user_id) VALUES (?1, '')",
        ] {
            try transaction.connection.statement(sql).run { $0.bind(Int64(former.number), at: 1) }
        }
        try transaction.changedProjects()
        return former
    }

    private static func decode(_ row: Statement) -> AttributeDefinition? {
        guard let document = try? JSONParser().parse(row.text(2)), let number = UInt32(exactly: row.integer(0)) else {
            return nil
        }
        return AttributeDefinition(name: Identifier(row.text(1)), number: number, document: document)
    }
}

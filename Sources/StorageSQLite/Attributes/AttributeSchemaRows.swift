import Bucketing
import JSON
import Storage

/// The `attributes` table.
enum AttributeSchemaRows {
    static func all(on connection: Connection) throws(SQLiteError) -> [AttributeDefinition] {
        var definitions: [AttributeDefinition] = []
        try connection.statement("SELECT number, name, definition FROM attributes").run(row: { row in
            // One of a newer release is passed over, as if it were not defined.
            if let definition = decode(row) { definitions.append(definition) }
        })
        return definitions
    }

    static func find(_ name: Identifier, on connection: Connection) throws(SQLiteError) -> AttributeDefinition? {
        var definition: AttributeDefinition?
        try connection.statement("SELECT number, name, definition FROM attributes WHERE name = ?1").run {
            $0.bind(name.string, at: 1)
        } row: {
            definition = decode($0)
        }
        return definition
    }

    static func isDefined(_ number: UInt32, on connection: Connection) throws(SQLiteError) -> Bool {
        var isDefined = false
        try connection.statement("SELECT 1 FROM attributes WHERE number = ?1").run {
            $0.bind(Int64(number), at: 1)
        } row: { _ in
            isDefined = true
        }
        return isDefined
    }

    static func put(
        _ wanted: AttributeDefinition, in transaction: WriteTransaction
    ) throws(SQLiteError) -> AttributeDefinitionResult {
        let former = try find(wanted.name, on: transaction.connection)
        guard let former else { return .created(try insert(wanted, in: transaction)) }
        guard former.type == wanted.type, former.isMultiple == wanted.isMultiple else { return .otherType(former) }
        let definition = AttributeDefinition(
            name: former.name, number: former.number, type: former.type, allowedValues: wanted.allowedValues,
            isMultiple: former.isMultiple)
        guard definition != former else { return .unchanged(former) }
        try transaction.connection.statement("UPDATE attributes SET definition = ?2 WHERE number = ?1").run {
            $0.bind(Int64(former.number), at: 1)
            $0.bind(String(decoding: describe(definition).encoded(), as: UTF8.self), at: 2)
        }
        try transaction.changedProjects()
        return .changed(definition)
    }

    private static func insert(
        _ wanted: AttributeDefinition, in transaction: WriteTransaction
    ) throws(SQLiteError) -> AttributeDefinition {
        var number: UInt32 = 0
        try transaction.connection.statement(
            "INSERT INTO attributes (name, definition) VALUES (?1, ?2) RETURNING number"
        ).run {
            $0.bind(wanted.name.string, at: 1)
            $0.bind(String(decoding: describe(wanted).encoded(), as: UTF8.self), at: 2)
        } row: {
            number = UInt32(clamping: $0.integer(0))
        }
        try transaction.changedProjects()
        return AttributeDefinition(
            name: wanted.name, number: number, type: wanted.type, allowedValues: wanted.allowedValues,
            isMultiple: wanted.isMultiple)
    }

    /// Takes an attribute out of the schema; its values are left to ``AttributeRemoval``.
    ///
    /// - Returns: the attribute, if there was one.
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

    /// The definition but for its name, as a row and the audit log have it.
    static func describe(_ definition: AttributeDefinition) -> JSONValue {
        var object = JSONObject()
        object["type"] = .string(definition.type.rawValue)
        if definition.type == .selection {
            object["values"] = .array(definition.allowedValues.map { .string($0.string) })
            object["multiple"] = .bool(definition.isMultiple)
        }
        return .object(object)
    }

    private static func decode(_ row: Statement) -> AttributeDefinition? {
        guard let object = (try? JSONParser().parse(row.text(2)))?.object,
            let type = object["type"]?.string.flatMap({ AttributeType(rawValue: $0) }),
            let number = UInt32(exactly: row.integer(0))
        else { return nil }
        return AttributeDefinition(
            name: Identifier(row.text(1)), number: number, type: type,
            allowedValues: (object["values"]?.array ?? []).compactMap(\.string).map { Identifier($0) },
            isMultiple: object["multiple"]?.bool ?? false)
    }
}

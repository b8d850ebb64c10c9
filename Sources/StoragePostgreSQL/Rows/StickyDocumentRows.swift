import Bucketing
import JSON
import Storage

/// The `sticky_documents` table.
enum StickyDocumentRows {
    private static let findAll = Statement(
        "sticky_documents",
        """
        SELECT attribute_value, attribute_name, assignments FROM sticky_documents
        JOIN unnest($1::text[], $2::text[]) AS asked (value, name) ON attribute_value = value AND attribute_name = name
        WHERE attribute_value = ANY($1)
        """)
    private static let insertEmpty = Statement(
        "insert_sticky_document",
        """
        INSERT INTO sticky_documents (attribute_value, attribute_name, assignments) VALUES ($1, $2, '{}')
        ON CONFLICT (attribute_value, attribute_name) DO NOTHING
        RETURNING 1
        """)
    private static let findOne = Statement(
        "locked_sticky_document",
        """
        SELECT assignments FROM sticky_documents WHERE attribute_value = $1 AND attribute_name = $2 FOR UPDATE
        """)
    private static let updateOne = Statement(
        "update_sticky_document",
        "UPDATE sticky_documents SET assignments = $3 WHERE attribute_value = $1 AND attribute_name = $2")
    private static let deleteOne = Statement(
        "delete_sticky_document",
        "DELETE FROM sticky_documents WHERE attribute_value = $1 AND attribute_name = $2")
    /// The documents of all attributes with a user's id.
    static let ofUsers = Statement(
        "sticky_documents_of_users",
        """
        SELECT attribute_value, attribute_name, assignments FROM sticky_documents WHERE attribute_value = ANY($1)
        ORDER BY attribute_name COLLATE "C"
        """)
    /// Of erased users.
    static let deleteAll = Statement(
        "delete_sticky_documents", "DELETE FROM sticky_documents WHERE attribute_value = ANY($1)")

    static func find(_ keys: [StickyDocumentKey]) -> Query {
        let keys = Set(keys)
        return findAll(.texts(keys.map(\.attributeValue.string)), .texts(keys.map(\.attributeName.string)))
    }

    static func contents(_ rows: Rows) -> [StickyDocumentKey: String] {
        var contents: [StickyDocumentKey: String] = [:]
        for row in rows.indices {
            let key = StickyDocumentKey(attributeName: rows.identifier(row, 1), attributeValue: rows.identifier(row, 0))
            contents[key] = rows.text(row, 2)
        }
        return contents
    }

    /// Creates an empty document if there is none, which returns a row, and locks the document.
    static func lock(_ key: StickyDocumentKey) -> [Query] {
        [insertEmpty(.text(key.attributeValue.string), .text(key.attributeName.string)), findLocked(key)]
    }

    static func findLocked(_ key: StickyDocumentKey) -> Query {
        findOne(.text(key.attributeValue.string), .text(key.attributeName.string))
    }

    static func update(_ document: StickyDocument) -> Query {
        updateOne(
            .text(document.key.attributeValue.string), .text(document.key.attributeName.string),
            .text(String(decoding: document.content.encoded(), as: UTF8.self)))
    }

    static func delete(_ key: StickyDocumentKey) -> Query {
        deleteOne(.text(key.attributeValue.string), .text(key.attributeName.string))
    }
}

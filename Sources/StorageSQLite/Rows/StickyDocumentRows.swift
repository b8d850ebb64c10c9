import Bucketing
import JSON
import Storage

/// The `sticky_documents` table.
enum StickyDocumentRows {
    /// - Throws: ``StorageError/damaged(reason:)`` if the row is damaged, which concerns only this document.
    static func find(_ key: StickyDocumentKey, on connection: Connection) throws -> StickyDocument? {
        try content(of: key, on: connection).map { content in try StickyDocument(key: key, content: content) }
    }

    private static func content(of key: StickyDocumentKey, on connection: Connection) throws(SQLiteError) -> String? {
        try connection.statement(
            "SELECT assignments FROM sticky_documents WHERE attribute_value = ?1 AND attribute_name = ?2"
        ).first {
            bind(key, to: $0)
        } row: {
            $0.text(0)
        }
    }

    /// Returns the documents of all attributes with a user's id.
    static func ofUser(
        _ userID: Identifier, on connection: Connection
    ) throws(SQLiteError) -> [UserRecords.StickyContent] {
        try connection.statement(
            "SELECT attribute_name, assignments FROM sticky_documents WHERE attribute_value = ?1 ORDER BY attribute_name"
        ).all {
            $0.bind(userID.string, at: 1)
        } row: {
            .init(attributeName: $0.text(0), content: $0.text(1))
        }
    }

    /// Merges a change into a document, and returns the result.
    static func apply(
        _ change: StickyDocumentChange, limit: Int, in transaction: WriteTransaction
    ) throws -> StickyDocument {
        try transaction.expectNotErased(change.key.attributeValue)
        let stored = try find(change.key, on: transaction.connection)
        let document = try StickyDocumentRules.merge(change, into: stored, limit: limit)
        if document != stored ?? StickyDocument(key: change.key) { try put(document, in: transaction) }
        return document
    }

    private static func put(_ document: StickyDocument, in transaction: WriteTransaction) throws(SQLiteError) {
        try transaction.connection.statement(
            """
            INSERT INTO sticky_documents (attribute_value, attribute_name, assignments) VALUES (?1, ?2, ?3)
            ON CONFLICT (attribute_value, attribute_name) DO UPDATE SET assignments = excluded.assignments
            """
        ).run {
            bind(document.key, to: $0)
            $0.bind(String(decoding: document.content.encoded(), as: UTF8.self), at: 3)
        }
        transaction.changed()
    }

    /// Deletes a document, even an unreadable one.
    ///
    /// - Returns: whether it existed.
    static func remove(
        _ key: StickyDocumentKey, by author: Author, at now: Timestamp, in transaction: WriteTransaction
    ) throws(SQLiteError) -> Bool {
        guard let former = try content(of: key, on: transaction.connection) else { return false }
        try transaction.connection.statement(
            "DELETE FROM sticky_documents WHERE attribute_value = ?1 AND attribute_name = ?2"
        ).run { bind(key, to: $0) }
        let note = AuditNote(removing: key, try? StickyDocument(key: key, content: former))
        try transaction.record(note, by: author, at: now)
        return true
    }

    private static func bind(_ key: StickyDocumentKey, to statement: Statement) {
        statement.bind(key.attributeValue.string, at: 1)
        statement.bind(key.attributeName.string, at: 2)
    }
}

import Bucketing
import JSON

/// The rules of the documents in which SDKs of GrowthBook and Statsig store variations. They are unrelated to the
/// decisions of `StickyDecisionService`. Pure: no I/O.
public enum StickyDocumentRules {
    /// Merges a change into a document.
    ///
    /// - Parameters:
    ///   - stored: the stored document; `nil` if there is none.
    ///   - limit: the maximum number of assignments. A document that exceeds the limit already may stay as large as it
    ///     is.
    /// - Returns: the document after the change. The caller does not store an empty document.
    /// - Throws: ``StorageError/tooManyAssignments(limit:)`` if the document would exceed the limit.
    public static func merge(
        _ change: StickyDocumentChange, into stored: StickyDocument?, limit: Int
    ) throws(StorageError) -> StickyDocument {
        var document = stored ?? StickyDocument(key: change.key)
        for name in change.removed { document.assignments[name] = nil }
        document.assignments.merge(change.assignments) { stored, new in
            change.onConflict == .keep ? stored : new
        }
        guard document.assignments.count <= max(limit, stored?.assignments.count ?? 0) else {
            throw .tooManyAssignments(limit: limit)
        }
        return document
    }
}

extension AuditNote {
    /// Describes the deletion of a sticky document.
    ///
    /// - Parameter former: the deleted document; `nil` if it could not be decoded.
    public init(removing key: StickyDocumentKey, _ former: StickyDocument?) {
        self.init(
            .stickyDelete, of: key.attributeName.string, userID: key.attributeValue,
            before: former?.content ?? .null)
    }
}

public import Bucketing

/// Which entries of the audit log are asked for; what is `nil` does not matter.
public struct AuditQuery: Sendable {
    public var author: String?
    public var action: AuditAction?
    public var userID: Identifier?
    public var target: String?
    /// Entries recorded at this moment or later.
    public var since: Timestamp?
    /// Entries recorded before this moment.
    public var until: Timestamp?
    /// Entries older than the one of this id.
    public var after: Int64?
    public var limit: Int

    public init(limit: Int) {
        self.limit = limit
    }
}

/// Where the actions of admins are kept. An entry is part of the transaction of the change that it tells of: neither
/// is there without the other. What changed nothing is not recorded.
public protocol AuditStore: Sendable {
    /// Applies an admin's change of a profile and records it; otherwise as ``ProfileStore/submit(_:completion:)``.
    ///
    /// Erasing a user takes the user out of the entries that are there: the id, and what was before and after.
    func submit(
        _ change: ProfileChange, by author: Author,
        completion: @escaping @Sendable (Result<ProfileChangeResult, StorageError>) -> Void
    )

    /// Records what was done elsewhere than in the store.
    func record(
        _ note: AuditNote, by author: Author, completion: @escaping @Sendable (Result<Void, StorageError>) -> Void)

    /// Entries, the newest first.
    ///
    /// - Parameter completion: called on a thread of the store's choice.
    func auditEntries(
        _ query: AuditQuery, completion: @escaping @Sendable (Result<[AuditEntry], StorageError>) -> Void)
}

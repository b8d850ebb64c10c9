/// Why a store could not do what it was asked.
public enum StorageError: Error, Hashable, Sendable {
    /// The profile would hold more assignments than the limit allows. Nothing was stored.
    case tooManyAssignments(limit: Int)
    /// More writes are waiting than the limit allows. Nothing was stored; the caller may try again.
    case overloaded
    /// The store failed (disk full, locked, unreadable, …). Nothing is acknowledged.
    case unavailable(reason: String)
    /// The store is closed or closing.
    case closed
}

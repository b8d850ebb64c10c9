/// Why a store could not do what it was asked.
public enum StorageError: Error, Hashable, Sendable {
    /// The profile would hold more assignments than the limit allows. Nothing was stored.
    case tooManyAssignments(limit: Int)
    /// The profile is not as the change's ``ProfileChange/condition`` demands. Nothing was stored.
    case conditionFailed
    /// More writes are waiting than the limit allows. Nothing was stored; the caller may try again.
    case overloaded
    /// The store failed (disk full, locked, unreadable, …). Nothing is acknowledged.
    case unavailable(reason: String)
    /// A decision was made with another datafile than the newest at the commit. Nothing was stored; the caller decides
    /// again with the newest.
    case staleDatafile
    /// What is stored of one user cannot be read; others are not affected. Nothing is acknowledged.
    case damaged(reason: String)
    /// The user was erased while the change waited for its transaction. Nothing was stored; the caller may try again.
    case erased
    /// The store is closed or closing.
    case closed
}

extension StorageError {
    /// Whether the same could be done for other users.
    public var concernsOneUser: Bool {
        switch self {
        case .tooManyAssignments, .conditionFailed, .damaged, .erased: true
        case .overloaded, .unavailable, .staleDatafile, .closed: false
        }
    }
}

extension StorageError: CustomStringConvertible {
    public var description: String {
        switch self {
        case .tooManyAssignments(let limit): "a profile must have at most \(limit) assignments; the change adds too many"
        case .conditionFailed: "the profile does not meet the condition of the change"
        case .overloaded: "too many writes are waiting; try again later"
        case .staleDatafile: "the decision must use the active datafile; it used another"
        case .unavailable(let reason), .damaged(let reason): reason
        case .erased: "the user was erased during the change"
        case .closed: "the store is closed"
        }
    }
}

/// Why a store refused or failed an operation.
public enum StorageError: Error, Hashable, Sendable {
    /// The change would make the profile exceed its assignment limit. Nothing was stored.
    case tooManyAssignments(limit: Int)
    /// The profile does not meet the change's ``ProfileChange/condition``. Nothing was stored.
    case conditionFailed
    /// Too many writes are waiting. Nothing was stored; the caller may retry.
    case overloaded
    /// The store failed: disk full, locked, unreadable… Nothing was acknowledged.
    case unavailable(reason: String)
    /// The decision did not use the newest datafile at the commit. Nothing was stored; the caller should decide again
    /// with the newest one.
    case staleDatafile
    /// The stored data of this user is unreadable; other users are not affected. Nothing was acknowledged.
    case damaged(reason: String)
    /// The user was erased while the change waited for its transaction. Nothing was stored; the caller may retry.
    case erased
    /// The store is closed or closing.
    case closed
}

extension StorageError {
    /// Whether the error concerns this user only, so that the operation may succeed for others.
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

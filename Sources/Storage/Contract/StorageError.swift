/// Why a database cannot be opened.
public struct DatabaseError: Error, Sendable, CustomStringConvertible {
    public let description: String
    /// Whether a retry is useless, because opening the database fails until somebody corrects the configuration or the
    /// database.
    public let isPermanent: Bool

    /// - Parameter database: the path or the address, without secrets.
    public init(_ database: String, _ reason: String, isPermanent: Bool = false) {
        description = "the database \(database) cannot be used: \(reason)"
        self.isPermanent = isPermanent
    }
}

/// Why a store refused or failed an operation.
public enum StorageError: Error, Hashable, Sendable {
    /// The change would make the profile exceed its assignment limit. Nothing was stored.
    case tooManyAssignments(limit: Int)
    /// The profile does not meet the change's ``ProfileChange/condition``. Nothing was stored.
    case conditionFailed
    /// Too many writes are waiting. Nothing was stored; the caller may retry.
    case overloaded
    /// The store failed, for example because the disk is full or the database locked. Nothing was acknowledged.
    case unavailable(reason: String)
    /// The decision was made with a datafile that is no longer the newest at the commit. Nothing was stored; the caller
    /// should decide again with the newest datafile.
    case staleDatafile
    /// The stored data of this user is unreadable; other users are not affected. Nothing was acknowledged.
    case damaged(reason: String)
    /// The user was erased while the change waited for its transaction. Nothing was stored; the caller may retry.
    case erased
    /// A text of the request contains NUL. PostgreSQL cannot store NUL, so no store accepts it. Nothing was stored.
    case unstorable
    /// The store is read-only at present. Nothing was stored; the caller may retry later.
    case readOnly
    /// The store is a copy, and its upstream does not respond. Nothing was stored, because the upstream makes all
    /// changes; the caller may retry later.
    case away
    /// The store is a copy, and the response of its upstream was cut off. Whether the change was made is unknown.
    case undecided
    /// The store is closed or closing.
    case closed
}

extension StorageError {
    /// Whether the error concerns one user only, so that the operation may succeed for other users.
    public var concernsOneUser: Bool {
        switch self {
        case .tooManyAssignments, .conditionFailed, .damaged, .erased, .unstorable: true
        case .overloaded, .unavailable, .staleDatafile, .readOnly, .away, .undecided, .closed: false
        }
    }
}

extension StorageError: CustomStringConvertible {
    public var description: String {
        switch self {
        case .tooManyAssignments(let limit):
            "a profile must have at most \(limit) assignments; the change adds too many"
        case .conditionFailed: "the profile does not meet the condition of the change"
        case .overloaded: "too many writes are waiting; try again later"
        case .staleDatafile: "the decision must use the active datafile; it used another"
        case .unavailable(let reason), .damaged(let reason): reason
        case .erased: "the user was erased during the change"
        case .unstorable: "a text must not contain NUL"
        case .readOnly: "the store is read-only"
        case .away: "the upstream does not respond"
        case .undecided: "the upstream has not responded completely"
        case .closed: "the store is closed"
        }
    }
}

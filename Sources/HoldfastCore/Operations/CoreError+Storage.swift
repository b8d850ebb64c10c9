public import Definitions
import JSON
public import Storage

extension CoreError {
    /// Describes to a client why the store did not perform an operation.
    ///
    /// The cause is given only for damaged data. Other causes concern the operator of the server, so only the log and
    /// `GET /readyz` show them.
    public init(_ error: StorageError) {
        switch error {
        case .tooManyAssignments(let limit):
            self.init(
                .unprocessable, "a profile must have at most \(limit) assignments; the change adds too many",
                at: ["experiment_bucket_map"])
        case .conditionFailed:
            self.init(
                .preconditionFailed,
                "If-Match or If-None-Match does not allow the change of the current version; nothing was changed")
        case .overloaded:
            self.init(.unavailable, "too many writes are waiting; nothing was stored; try again later")
        case .staleDatafile:
            self.init(
                .unavailable, "this server cannot use the active datafile, or it changes too fast; nothing was stored")
        case .damaged(let reason):
            self.init(.unavailable, reason)
        case .erased:
            self.init(.unavailable, "the user was erased during the request; nothing was stored; try again")
        case .unstorable:
            self.init(.invalid, "a text must not contain NUL (U+0000); nothing was stored")
        case .unavailable:
            self.init(.unavailable, "the store is unavailable; nothing was acknowledged; GET /readyz names the cause")
        case .readOnly:
            self.init(
                .unavailable,
                "the server must accept changes; it is read-only while its database is moved; nothing was stored; "
                    + "try again later")
            // The client may try again after this number of seconds.
            retryAfter = 5
        case .away:
            self.init(.unavailable, "the upstream of this edge does not respond; nothing was stored; try again later")
        case .undecided:
            self.init(
                .undecided,
                "the upstream of this edge has not responded in time; the change may have been stored or not; "
                    + "try again later")
        case .closed:
            self.init(.unavailable, "the server is shutting down; nothing was stored")
        }
    }
}

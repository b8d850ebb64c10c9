/// What a store tells its operator, once for each change.
public enum StoreEvent: Sendable {
    /// Changes fail, of which those before did not.
    case writesFail(reason: String)
    /// A change has been made again.
    case writesSucceed
    /// The write-ahead log cannot be copied into the database, and grows until it can.
    case checkpointFails(reason: String)
    /// The store was closed and so many bytes of the write-ahead log are left, because another process has the database
    /// open or because they could not be copied: a copy of the database file alone lacks them.
    case logRemains(bytes: Int)
}

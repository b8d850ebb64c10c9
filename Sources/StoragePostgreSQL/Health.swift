import Storage

/// Decides whether one kind of operations (lookups or writes) counts as failing. Reads no clock: the caller passes
/// times in monotonic nanoseconds.
///
/// Mostly one success ends a failure. But while only some connections work, failures and successes alternate. After
/// they have alternated for longer than ``onset``, the failure ends only with the first success after ``hold`` without
/// failures.
struct Health {
    /// How long failures may alternate with successes before they count as one lasting failure, in nanoseconds.
    static let onset: UInt64 = 1_000_000_000
    /// How long no operation must fail before a lasting failure can end, in nanoseconds.
    static let hold: UInt64 = 1_500_000_000

    /// The minimum time in nanoseconds between two reports of one failure with different reasons. The first reason is
    /// often only that the connection was lost, and a later reason explains why.
    static let nextReport: UInt64 = 5_000_000_000

    /// Why operations fail; `nil` if they work.
    private(set) var failure: StorageError?
    /// When the present series of failures began. A series ends with a time of ``hold`` without failures.
    private var first: UInt64 = 0
    /// When the last operation failed.
    private var last: UInt64?
    /// The last reported failure.
    private var reported: (error: StorageError, at: UInt64)?

    /// Notes a failure.
    ///
    /// - Returns: whether to report it: if operations worked before, or if the last report was for another reason and
    ///   longer than ``nextReport`` ago.
    mutating func failed(_ error: StorageError, at time: UInt64) -> Bool {
        if last.map({ time &- $0 > Self.hold }) ?? true { first = time }
        last = time
        defer { failure = error }
        if failure != nil, let reported {
            guard reported.error != error, time &- reported.at > Self.nextReport else { return false }
        }
        reported = (error, time)
        return true
    }

    /// Notes a success.
    ///
    /// - Returns: whether it ends a failure.
    mutating func succeeded(at time: UInt64) -> Bool {
        guard failure != nil, let last else { return false }
        let isBrief = last &- first < Self.onset
        let isOver = time &- last > Self.hold
        guard isBrief || isOver else { return false }
        failure = nil
        return true
    }
}

import Storage

/// Whether lookups, or writes, fail. Pure: times are passed in, in monotonic nanoseconds.
///
/// One success ends a failure, unless failures and successes have been alternating, as they do while some connections work
/// and others do not: then it ends with the first success after a while without failures.
struct Health {
    /// How long failures may alternate with successes before they count as one.
    static let onset: UInt64 = 1_000_000_000
    /// How long nothing must fail then.
    static let hold: UInt64 = 1_500_000_000

    /// Why operations fail; `nil` if they work.
    private(set) var failure: StorageError?
    private var first: UInt64 = 0
    private var last: UInt64?
    private var reported: (error: StorageError, at: UInt64)?
    /// After how long another reason is reported: the first one may only say that the connection was lost.
    static let nextReport: UInt64 = 5_000_000_000

    /// - Returns: whether to report it: operations worked before, or have failed for another reason for a while.
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

    /// - Returns: whether operations failed before, and count as working again.
    mutating func succeeded(at time: UInt64) -> Bool {
        guard failure != nil, let last, last &- first < Self.onset || time &- last > Self.hold else { return false }
        failure = nil
        return true
    }
}

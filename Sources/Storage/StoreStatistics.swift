/// How the in-memory cache of one reader did since it was made.
public struct CacheStatistics: Sendable {
    public var hits: UInt64 = 0
    public var misses: UInt64 = 0
    /// Bytes in use.
    public var bytes: Int = 0
    public var entries: Int = 0

    public init() {}
}

/// Figures of a store, cheap to take.
public struct StoreStatistics: Sendable {
    /// Profiles stored, and assignments in them all. May count expired ones that are not yet deleted.
    public var profiles: Int = 0
    public var assignments: Int = 0
    /// Changes that wait for their commit.
    public var waitingChanges: Int = 0
    /// Commits done, and changes in them.
    public var commits: UInt64 = 0
    public var changes: UInt64 = 0
    public var failedChanges: UInt64 = 0
    /// Changes refused because too many waited, or for too long.
    public var refusedChanges: UInt64 = 0
    /// Checkpoints that failed, while the log grows.
    public var failedCheckpoints: UInt64 = 0
    /// Seconds that each commit took, from begin to durable.
    public var commitSeconds = Histogram(bounds: [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5])
    /// Changes in each commit.
    public var batchSizes = Histogram(bounds: [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024])
    /// Assignments that retention deleted.
    public var expiredAssignments: UInt64 = 0
    /// Entries that this process made in the audit log, and those that retention deleted.
    public var auditEntries: UInt64 = 0
    public var deletedAuditEntries: UInt64 = 0
    /// Bytes in memory that tell who has no profile.
    public var userFilterBytes: Int = 0
    /// Bytes on disk, where the store is a file.
    public var databaseBytes: Int = 0
    public var logBytes: Int = 0

    public init() {}
}

/// Counts of observations by upper bound, in the manner of Prometheus.
public struct Histogram: Sendable {
    /// Upper bounds, ascending; what is greater than the last is only in `count`.
    public let bounds: [Double]
    /// Observations at or under each bound and over the one before it.
    public private(set) var counts: [UInt64]
    public private(set) var count: UInt64 = 0
    public private(set) var sum: Double = 0

    public init(bounds: [Double]) {
        self.bounds = bounds
        counts = Array(repeating: 0, count: bounds.count)
    }

    public mutating func observe(_ value: Double) {
        count &+= 1
        sum += value
        if let bucket = bounds.firstIndex(where: { value <= $0 }) {
            counts[bucket] &+= 1
        }
    }
}

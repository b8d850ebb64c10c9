/// Hits and misses of one session's cache since it was opened, and its present size.
public struct CacheMetrics: Sendable {
    public var hits: UInt64 = 0
    public var misses: UInt64 = 0
    /// The memory in use, in bytes.
    public var bytes: Int = 0
    public var entries: Int = 0

    public init() {}
}

/// Counters and gauges of a store. Cheap to collect.
public struct StoreMetrics: Sendable {
    /// Stored profiles, including expired ones that are not deleted yet.
    public var profiles: Int = 0
    /// Stored assignments, including expired ones that are not deleted yet.
    public var assignments: Int = 0
    /// Changes that wait for a commit.
    public var waitingChanges: Int = 0
    /// The estimated memory of the waiting changes, in bytes.
    public var waitingBytes: Int = 0
    public var commits: UInt64 = 0
    /// Changes that commits have made durable.
    public var changes: UInt64 = 0
    /// Changes that were not stored, because their rule refused them or because the transaction failed.
    public var failedChanges: UInt64 = 0
    /// Changes refused because too many changes waited, took too much memory, or had waited for too long; see
    /// ``StoreSettings``.
    public var refusedChanges: UInt64 = 0
    /// The time that commits take, in seconds: from the begin of the transaction until it is durable.
    public var commitSeconds = Histogram(bounds: [
        0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5,
    ])
    /// The number of changes per commit.
    public var batchSizes = Histogram(bounds: [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024])
    /// Expired assignments deleted by retention.
    public var expiredAssignments: UInt64 = 0
    /// Audit entries written by this process.
    public var auditEntries: UInt64 = 0
    /// Old audit entries deleted by retention.
    public var deletedAuditEntries: UInt64 = 0
    public var feed = FeedMetrics()
    /// Metrics that only this kind of store has.
    public var own: [StoreMetric] = []

    public init() {}
}

/// A counter or gauge that a store contributes to the metrics page.
public struct StoreMetric: Sendable {
    public enum Kind: Sendable {
        case counter
        case gauge
    }

    /// The name on the metrics page.
    public let name: String
    public let kind: Kind
    /// One sentence for operators.
    public let help: String
    /// The value, rounded down.
    public let value: UInt64
    /// The value as the metrics page prints it, with its fraction.
    public let text: String

    public init(_ name: String, _ kind: Kind, _ help: String, _ value: UInt64) {
        self.init(name, kind, help, value, text: "\(value)")
    }

    /// - Parameter seconds: the value, with its fraction.
    public init(_ name: String, _ kind: Kind, _ help: String, seconds: Double) {
        // The conversion to an integer traps beyond the range of `UInt64`.
        self.init(name, kind, help, UInt64(max(0, min(seconds, 1e15))), text: "\(seconds)")
    }

    private init(_ name: String, _ kind: Kind, _ help: String, _ value: UInt64, text: String) {
        self.name = name
        self.kind = kind
        self.help = help
        self.value = value
        self.text = text
    }
}

/// A histogram whose buckets have upper bounds, as in Prometheus.
public struct Histogram: Sendable {
    /// The upper bounds of the buckets, in ascending order. Observations above the last bound are only in ``count``.
    public let bounds: [Double]
    /// The number of observations in each bucket, without those in lower buckets.
    public private(set) var counts: [UInt64]
    /// The number of all observations.
    public private(set) var count: UInt64 = 0
    /// The sum of all observations.
    public private(set) var sum: Double = 0

    /// - Parameter bounds: in ascending order.
    public init(bounds: [Double]) {
        self.bounds = bounds
        counts = Array(repeating: 0, count: bounds.count)
    }

    /// Adds an observation.
    public mutating func observe(_ value: Double) {
        count &+= 1
        sum += value
        if let bucket = bounds.firstIndex(where: { value <= $0 }) {
            counts[bucket] &+= 1
        }
    }
}

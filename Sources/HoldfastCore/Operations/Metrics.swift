public import Bucketing
import Storage
internal import Synchronization

/// Counts decisions by the origin of the variation. Thread-safe.
public final class DecisionMetrics: Sendable {
    public init() {}

    private let requested = Atomic<UInt64>(0)
    private let override = Atomic<UInt64>(0)
    private let whitelist = Atomic<UInt64>(0)
    private let stored = Atomic<UInt64>(0)
    private let bucketed = Atomic<UInt64>(0)
    private let concluded = Atomic<UInt64>(0)
    private let holdout = Atomic<UInt64>(0)
    private let none = Atomic<UInt64>(0)

    public func count(_ source: DecisionSource) {
        switch source {
        case .requested: requested.add(1, ordering: .relaxed)
        case .override: override.add(1, ordering: .relaxed)
        case .whitelist: whitelist.add(1, ordering: .relaxed)
        case .stored: stored.add(1, ordering: .relaxed)
        case .bucketed: bucketed.add(1, ordering: .relaxed)
        case .concluded: concluded.add(1, ordering: .relaxed)
        case .holdout: holdout.add(1, ordering: .relaxed)
        case .none: none.add(1, ordering: .relaxed)
        }
    }

    public func value(_ source: DecisionSource) -> UInt64 {
        switch source {
        case .requested: requested.load(ordering: .relaxed)
        case .override: override.load(ordering: .relaxed)
        case .whitelist: whitelist.load(ordering: .relaxed)
        case .stored: stored.load(ordering: .relaxed)
        case .bucketed: bucketed.load(ordering: .relaxed)
        case .concluded: concluded.load(ordering: .relaxed)
        case .holdout: holdout.load(ordering: .relaxed)
        case .none: none.load(ordering: .relaxed)
        }
    }
}

/// Counts changes of attributes and scans for segments. Thread-safe.
public final class AttributeMetrics: Sendable {
    public init() {}

    private let changed = Atomic<UInt64>(0)
    private let unchanged = Atomic<UInt64>(0)
    private let scans = Atomic<UInt64>(0)
    private let examined = Atomic<UInt64>(0)

    public struct Totals {
        /// The numbers of values that were set or removed, and of values that were already stored.
        public let changed, unchanged: UInt64
        /// The number of scans of users for a segment, and the number of users that they have examined.
        public let scans, examined: UInt64
    }

    public var totals: Totals {
        Totals(
            changed: changed.load(ordering: .relaxed), unchanged: unchanged.load(ordering: .relaxed),
            scans: scans.load(ordering: .relaxed), examined: examined.load(ordering: .relaxed))
    }

    public func count(changed changes: Int, of values: Int) {
        changed.add(UInt64(changes), ordering: .relaxed)
        unchanged.add(UInt64(max(0, values - changes)), ordering: .relaxed)
    }

    public func countScan(of users: Int) {
        scans.add(1, ordering: .relaxed)
        examined.add(UInt64(users), ordering: .relaxed)
    }
}

/// Counts the evaluations of flags in apps, which client libraries report. Thread-safe.
public final class ReportedEvaluations: Sendable {
    /// Why a flag had its value, or why the app got its default.
    public enum Reason: String, Sendable, CaseIterable {
        case forced, override, whitelist, stored, bucketed, holdout, rollout, disabled
        case noRule = "no_rule"
        case unknown
        case notFetched = "not_fetched"
        case flagNotFound = "flag_not_found"
        case wrongType = "wrong_type"
    }

    public struct Series: Hashable, Sendable {
        public var sdkKey: String
        /// `nil` for a flag that the datafile does not have.
        public var flagKey: Identifier?
        /// `nil` for a default.
        public var variationKey: Identifier?
        public var reason: Reason

        public init(sdkKey: String, flagKey: Identifier?, variationKey: Identifier?, reason: Reason) {
            self.sdkKey = sdkKey
            self.flagKey = flagKey
            self.variationKey = variationKey
            self.reason = reason
        }
    }

    private struct State {
        var counts: [Series: UInt64] = [:]
        /// The ids of the last reports. When there are ``rememberedReports``, they replace the older generation.
        var recent: Set<Identifier> = []
        var older: Set<Identifier> = []
    }

    private let state = Mutex(State())

    /// The maximum number of series. Evaluations beyond it are counted without flag and variation.
    private static let seriesLimit = 10_000
    /// The number of reports within which a repeated report is recognised.
    private static let rememberedReports = 10_000

    public init() {}

    /// Adds the counts of a report, unless it was added already.
    ///
    /// - Returns: whether the report is new.
    public func add(_ counts: [(series: Series, count: UInt64)], id: Identifier) -> Bool {
        state.withLock { state in
            guard !state.older.contains(id), state.recent.insert(id).inserted else { return false }
            if state.recent.count >= Self.rememberedReports {
                state.older = state.recent
                state.recent = []
            }
            for (series, count) in counts {
                var series = series
                if state.counts[series] == nil, state.counts.count >= Self.seriesLimit {
                    (series.flagKey, series.variationKey) = (nil, nil)
                }
                state.counts[series, default: 0] &+= count
            }
            return true
        }
    }

    /// All series in a stable order.
    public var all: [(series: Series, count: UInt64)] {
        func key(_ series: Series) -> [String] {
            [series.sdkKey, series.flagKey?.string ?? "", series.variationKey?.string ?? "", series.reason.rawValue]
        }
        return state.withLock { $0.counts }.map { ($0.key, $0.value) }
            .sorted { key($0.series).lexicographicallyPrecedes(key($1.series)) }
    }
}

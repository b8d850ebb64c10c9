public import Bucketing
internal import Synchronization

/// Counts the evaluations of flags that client libraries report from apps, for the server's metrics. Thread-safe.
///
/// A client that receives no response repeats its report. A repeated report has the same id, and is not counted again.
public final class ReportedEvaluations: Sendable {
    /// The reason why a flag had its value, or why the app got its default. The raw value is a label of the metric.
    public enum Reason: String, Sendable, CaseIterable {
        case forced, override, whitelist, stored, bucketed, holdout, rollout, disabled
        case noRule = "no_rule"
        case unknown
        case notFetched = "not_fetched"
        case flagNotFound = "flag_not_found"
        case wrongType = "wrong_type"
    }

    /// The evaluations that are counted together: those with the same labels in the metrics.
    public struct Series: Hashable, Sendable {
        public var sdkKey: String
        /// The key of the flag; `nil` for a flag that the datafile does not have.
        public var flagKey: Identifier?
        /// The key of the variation; `nil` if the app got its default.
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
        /// The ids of the last reports, at most ``rememberedReports``.
        var recentIDs: Set<Identifier> = []
        /// The ids of the ``rememberedReports`` before the recent ones.
        var olderIDs: Set<Identifier> = []
    }

    private let state = Mutex(State())

    /// The maximum number of series, which bounds the response with the metrics. Evaluations of further series are
    /// counted without flag and variation.
    private static let seriesLimit = 10_000
    /// A repeated report is recognised among at least this number of preceding reports.
    private static let rememberedReports = 10_000

    public init() {}

    /// Adds the counts of a report, unless it was added already.
    ///
    /// - Returns: whether the report is new.
    public func add(_ counts: [(series: Series, count: UInt64)], id: Identifier) -> Bool {
        state.withLock { state in
            guard !state.olderIDs.contains(id), state.recentIDs.insert(id).inserted else { return false }
            if state.recentIDs.count >= Self.rememberedReports {
                state.olderIDs = state.recentIDs
                state.recentIDs = []
            }
            for (series, count) in counts {
                var series = series
                if state.counts[series] == nil, state.counts.count >= Self.seriesLimit {
                    series.flagKey = nil
                    series.variationKey = nil
                }
                state.counts[series, default: 0] &+= count
            }
            return true
        }
    }

    /// All series with their counts, sorted by their labels.
    public var all: [(series: Series, count: UInt64)] {
        let counts = state.withLock { $0.counts }
        return counts.map { (series: $0.key, count: $0.value) }
            .sorted { $0.series.labels.lexicographicallyPrecedes($1.series.labels) }
    }
}

extension ReportedEvaluations.Series {
    /// The labels in the order by which series are sorted.
    fileprivate var labels: [String] {
        [sdkKey, flagKey?.string ?? "", variationKey?.string ?? "", reason.rawValue]
    }
}

public import Bucketing
internal import Synchronization

/// Counts the evaluations of flags in apps, which client libraries report, for the server's metrics. Thread-safe.
///
/// A report has an id, because a client repeats it if it receives no response. A repeated report is not counted again.
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
        /// The ids of the last reports. When there are ``rememberedReports``, they become the ``older`` ones.
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
        func key(_ series: Series) -> [String] {
            [series.sdkKey, series.flagKey?.string ?? "", series.variationKey?.string ?? "", series.reason.rawValue]
        }
        return state.withLock { $0.counts }.map { ($0.key, $0.value) }
            .sorted { key($0.series).lexicographicallyPrecedes(key($1.series)) }
    }
}

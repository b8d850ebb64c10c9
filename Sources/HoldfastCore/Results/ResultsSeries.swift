import Bucketing
public import Definitions
import Storage

/// The results of an experiment by day of enrollment, for a chart of their development. The results of a day include
/// all users who were enrolled up to that day, with all their events until now.
public struct ResultsSeries: Sendable {
    /// The results of all users.
    public let whole: ExperimentResults
    /// The results of each day, in order.
    public let days: [(day: Int64, results: ExperimentResults)]

    /// The maximum number of days, because the results of each day are computed separately. For a longer experiment,
    /// only the last days are computed.
    private static let limit = 400

    /// - Parameters:
    ///   - whole: the results of all users.
    ///   - results: computes the results for a query that differs from that of `whole` only in its days.
    public init(
        _ whole: ExperimentResults, _ results: (ResultsQuery) throws(CoreError) -> ExperimentResults
    ) throws(CoreError) {
        self.whole = whole
        let first = whole.query.enrolledOn?.lowerBound ?? .min
        var days: [(day: Int64, results: ExperimentResults)] = []
        for day in whole.days.map(\.day).suffix(Self.limit) {
            var query = whole.query
            query.enrolledOn = first...day
            days.append((day, try results(query)))
        }
        self.days = days
    }
}

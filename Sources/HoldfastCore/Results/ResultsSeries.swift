import Bucketing
public import Definitions
import Storage

/// How the results of an experiment grew: for each day of enrollment those of all users who were enrolled until then, with what
/// they have done to this day.
public struct ResultsSeries: Sendable {
    /// Those of all users.
    public let whole: ExperimentResults
    /// In the order of the days.
    public let days: [(day: Int64, results: ExperimentResults)]

    /// The maximum number of days; of a longer experiment only the last ones.
    private static let limit = 400

    /// - Parameter results: makes the results for a query that differs in its days only.
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

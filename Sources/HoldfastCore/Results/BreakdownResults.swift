public import Bucketing
public import Chronology
import Definitions
public import Storage

/// The results for each group of users with the same value of an attribute, such as the users of each country. They are
/// exploratory: no verdict depends on them.
///
/// The comparisons of all variations in all groups are tested together, like secondary metrics: by the procedure of
/// Benjamini and Hochberg with always-valid p-values.
public struct BreakdownResults: Sendable {
    /// The name of a group: the value of the attribute.
    public enum Name: Sendable, Equatable {
        /// The users for whom the attribute had no value.
        case none
        case value(Identifier)
        /// The users with all other values. A breakdown has a limited number of groups.
        case other
    }

    /// The results of the users with one value.
    public struct Group: Sendable {
        public let name: Name
        public let results: ExperimentResults
        /// The findings, one for each variation in order; `nil` for the baseline.
        public let findings: [Verdict.Finding?]
    }

    /// The stored totals of the groups, and the series in which the store counts them.
    public struct Totals: Sendable {
        public let series: TrackedSeries
        public let tally: BreakdownTally
    }

    public let attribute: Identifier
    /// The number of counted users without a group, because they were exposed before the breakdown was declared.
    public let usersWithoutGroup: Int
    /// When the breakdown was declared; `nil` if all users have a group.
    public let countsSince: Instant?
    /// The groups with users: ``Name/none`` first, ``Name/other`` last.
    public let groups: [Group]

    /// Reads the groups of an experiment by an attribute.
    ///
    /// - Parameters:
    ///   - name: the goal, or the name under which a metric is tallied.
    ///   - time: the time at which the results were frozen; `nil` for current results.
    /// - Throws: 422 if the experiment has no breakdown by the attribute.
    public static func read(
        _ attribute: Identifier, _ name: Identifier, of experiment: Experiment, frozenAt time: Instant?,
        _ store: any StoreSession
    ) async throws -> Totals {
        let found = try await series(attribute, of: experiment, parameter: "breakdown", store)
        let tally = try await store.read(
            .breakdown(experimentID: experiment.id, series: found.number, goal: name, frozenAt: time))
        return Totals(series: found, tally: tally)
    }

    /// Returns the series in which the store counts the groups of an attribute.
    ///
    /// - Parameter parameter: the query parameter that names the attribute, for errors.
    /// - Throws: 422 if the experiment has no breakdown by the attribute.
    static func series(
        _ attribute: Identifier, of experiment: Experiment, parameter: String, _ store: any StoreSession
    ) async throws -> TrackedSeries {
        let series = try await store.read(.series(experimentID: experiment.id))
        guard let found = series.first(where: { $0.breakdown == attribute }) else {
            let known = series.compactMap(\.breakdown)
            let list = known.map(\.string).joined(separator: ", ")
            throw CoreError(
                .unprocessable,
                "`\(parameter)` must be one of the experiment's breakdowns (\(list.isEmpty ? "none" : list)); got "
                    + "'\(attribute)'\(Spelling.hint(for: attribute, among: known))")
        }
        return found
    }

    /// - Parameters:
    ///   - whole: the results of all users.
    ///   - results: computes the results of some users.
    init(
        _ totals: Totals, of whole: ExperimentResults,
        _ results: (ExperimentTally, MeasuredMetric?) throws(CoreError) -> ExperimentResults
    ) throws(CoreError) {
        attribute = totals.series.breakdown ?? ""
        var found: [(name: Name, results: ExperimentResults)] = []
        for index in totals.tally.indices {
            let tally = totals.tally.tally(of: index)
            let group = try results(tally, whole.measured?.of([tally]))
            guard group.counted > 0 else { continue }
            found.append((Self.name(index, totals.series), group))
        }
        usersWithoutGroup = max(0, whole.counted - found.reduce(0) { $0 + $1.results.counted })
        countsSince = usersWithoutGroup > 0 ? totals.series.since : nil

        let findings = Self.findings(found.map(\.results), of: whole)
        groups = zip(found, findings).map { group, findings in
            Group(name: group.name, results: group.results, findings: findings)
        }
    }

    /// Tests the comparisons of all groups together.
    ///
    /// - Returns: for each group a finding for each variation; `nil` for the baseline.
    private static func findings(
        _ groups: [ExperimentResults], of whole: ExperimentResults
    ) -> [[Verdict.Finding?]] {
        let compared = whole.variations.indices.filter { !whole.variations[$0].isBaseline }
        let comparisons = groups.flatMap { group in
            compared.map { group.comparison(.secondary, of: $0) }
        }
        // The findings have the order of the comparisons: first those of the first group, and so on.
        let findings = Verdict.findings(comparisons, alpha: 1 - whole.query.confidence)
        return groups.indices.map { position in
            let own = findings.dropFirst(position * compared.count).prefix(compared.count)
            return whole.variations.indices.map { index in own.first { $0.variation == index } }
        }
    }

    /// Returns the name of a group by its index; see ``Storage/BreakdownGroup``. The group of users without a value
    /// comes first, then the groups of the values in order, then the group of all other values.
    private static func name(_ index: Int, _ series: TrackedSeries) -> Name {
        if index == BreakdownGroup.none { return .none }
        guard series.groupValues.indices.contains(index - 1) else { return .other }
        return .value(series.groupValues[index - 1])
    }
}

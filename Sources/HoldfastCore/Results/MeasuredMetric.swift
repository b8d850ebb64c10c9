public import Bucketing
public import Chronology
public import Definitions
import Statistics
public import Storage

/// A metric of an experiment with its tallies.
///
/// A metric is tallied like a goal, under the name of its series (``MetricDefinition/series``), or under the name of
/// the goal if it needs no series. A funnel has a name and a tally for each step.
public struct MeasuredMetric: Sendable {
    public let definition: MetricDefinition
    /// Whether events from before the metric was defined are still being added to the totals.
    public let isFilling: Bool
    /// Only events that were received at this time or later count, because earlier events had been deleted when the
    /// metric was defined. `nil` if all events count.
    public let countsSince: Instant?
    /// The tally of each step of a funnel; a single tally for other metrics.
    let tallies: [ExperimentTally]
    /// The names under which the tallies are stored.
    public let names: [Identifier]

    init(
        _ definition: MetricDefinition, _ tallies: [ExperimentTally], names: [Identifier], isFilling: Bool,
        countsSince: Instant?
    ) {
        self.definition = definition
        self.names = names
        self.tallies = tallies
        self.isFilling = isFilling
        self.countsSince = countsSince
    }

    /// Reads the tallies of a metric of an experiment.
    ///
    /// - Parameter time: the time at which the results were frozen; `nil` for current results.
    /// - Returns: the metric, and the frozen totals if there are any.
    public static func read(
        _ definition: MetricDefinition, of experimentID: Identifier, frozenAt time: Instant?,
        _ store: any StoreSession
    ) async throws(StorageError) -> (measured: MeasuredMetric, frozen: FrozenResults?) {
        var frozen: FrozenResults?
        func tally(_ name: Identifier) async throws(StorageError) -> ExperimentTally {
            if let time {
                frozen = try await store.read(
                    .frozenResults(experimentID: experimentID, goal: name, frozenAt: time))
                if let frozen { return frozen.tally }
            }
            return try await store.read(.tally(experimentID: experimentID, goal: name))
        }
        guard let needed = definition.series else {
            let name = definition.goals[0]
            let tally = try await tally(name)
            return (MeasuredMetric(definition, [tally], names: [name], isFilling: false, countsSince: nil), frozen)
        }
        let series = try await store.read(.series(experimentID: experimentID)).first { $0.definition == needed }
        var tallies: [ExperimentTally] = []
        // The store may not track the series yet. No totals are stored under `unknownName`, so the tally that is read
        // has only the numbers of users.
        let names = series?.names ?? [TrackedSeries.unknownName]
        for name in names { tallies.append(try await tally(name)) }
        let firstDay = tallies[0].days.first?.day
        let since = series?.since ?? .epoch
        // Users who were enrolled before the series was tracked lack events.
        let lacksEvents = firstDay.map { $0 < since.day } ?? false
        let measured = MeasuredMetric(
            definition, tallies, names: names, isFilling: series?.state != .filled,
            countsSince: lacksEvents ? since : nil)
        return (measured, frozen)
    }

    /// Returns the metric for some of the users.
    ///
    /// - Parameter tallies: the tally of these users. A funnel has a tally for each step, or only for the last step.
    public func of(_ tallies: [ExperimentTally]) -> MeasuredMetric {
        MeasuredMetric(definition, tallies, names: names, isFilling: isFilling, countsSince: countsSince)
    }

    /// The name under which ``tally`` is stored.
    public var name: Identifier { names.last ?? TrackedSeries.unknownName }

    /// The tally that the metric compares; for a funnel the tally of the last step.
    public var tally: ExperimentTally { tallies.last ?? ExperimentTally() }
}

extension VariationData {
    /// Returns the estimate of a metric, compared with the baseline.
    func estimate(
        _ definition: MetricDefinition, against baseline: VariationData?, _ query: ResultsQuery
    ) -> ExperimentResults.Estimate {
        estimate(
            definition.statistic, against: baseline, isDecrease: definition.direction == .decrease,
            adjustment: definition.isAdjusted ? .decides : .none, query)
    }

    /// Returns the sample whose variance determines the sample size of a metric: the sample adjusted by CUPED if the
    /// metric is adjusted, and the plain sample otherwise.
    ///
    /// Without values before the exposure, and in an experiment with a bandit, there is no adjustment
    /// (``adjustedContrast(against:)``). The plain sample is then returned for an adjusted metric, too.
    func plannedSample(_ definition: MetricDefinition) -> Sample? {
        guard definition.isAdjusted, adaptive == nil, value.squaresBefore > 0 else {
            return sample(definition.statistic)
        }
        return Sample(count: users, mean: value.mean, variance: value.residualVariance)
    }

    /// Returns the power of the comparison of a metric. The effect of interest is the effect of the query, or else the
    /// metric's minimum effect.
    ///
    /// - Parameter rates: the numbers of users enrolled per day.
    func power(
        _ definition: MetricDefinition, against baseline: VariationData,
        _ rates: (variation: Double, baseline: Double), _ query: ResultsQuery
    ) -> ResultsPower? {
        var query = query
        query.effect = query.effect ?? definition.minimumEffect
        if definition.statistic == .rate, !definition.isAdjusted {
            return conversionPower(against: baseline, rates, query)
        }
        return baseline.plannedSample(definition).map { power(of: $0, against: baseline, rates, query) }
    }
}

public import Bucketing
import Chronology
public import Definitions
import JSON
public import Storage

extension MetricDefinition {
    /// The computation over users' events that the metric needs. The store keeps its totals.
    ///
    /// `nil` if the metric needs only the count and the sum of a goal: the store always counts these, with the sum
    /// before the exposure as the standard covariate.
    public var series: SeriesDefinition? {
        let end = window.map { TimeSpan(days: $0) }
        let covariate = covariate
        switch kind {
        case .conversion:
            guard window != nil || adjustment != .none else { return nil }
            return SeriesDefinition(.sum(.init(goal, .count), cap: rateCap), to: end, covariate: covariate)
        case .count:
            return SeriesDefinition(.sum(.init(goal, .count), cap: cap), to: end, covariate: covariate)
        case .total:
            guard window != nil || cap != nil || covariate != .standard else { return nil }
            return SeriesDefinition(.sum(.init(goal, .value), cap: cap), to: end, covariate: covariate)
        case .mean:
            return SeriesDefinition(.ratio(.init(goal, .value, cap: cap), .init(goal, .count)), to: end)
        case .ratio:
            return SeriesDefinition(.ratio(numerator.term, denominator.term), to: end)
        case .retention:
            return SeriesDefinition(
                .sum(.init(goal, .count), cap: rateCap), from: TimeSpan(days: from), to: TimeSpan(days: to),
                covariate: covariate)
        case .funnel: return SeriesDefinition(.funnel(goals), to: end)
        }
    }

    /// The values from before the exposure by which CUPED adjusts the metric.
    private var covariate: SeriesDefinition.Covariate {
        switch adjustment {
        case .none: .standard
        case .days(let days): .before(.days(Int64(days)))
        case .attribute(let name): .attribute(name)
        }
    }

    /// The cap of the number of events per user for a rate. CUPED treats a rate as a mean of numbers of events, so with
    /// the cap of 1 a user counts once, both before and after the exposure. A rate that is not adjusted needs no cap.
    private var rateCap: Double? { adjustment == .none ? nil : 1 }
}

extension MetricDefinition.Term {
    fileprivate var term: SeriesDefinition.Term { .init(goal, measure == .count ? .count : .value) }
}

extension ProjectDefinitions {
    /// The computations over users' events for the metrics, breakdowns and bandits of experiments and for holdouts, by
    /// the id of the experiment or holdout. The store keeps the totals of each computation.
    public var series: [Identifier: [SeriesDefinition]] {
        var series: [Identifier: [SeriesDefinition]] = [:]
        func add(_ measured: ExperimentMetrics, of id: Identifier, hasBandit: Bool = false) {
            var found = measured.breakdowns.map { SeriesDefinition(.breakdown($0)) }
            // Two metrics may need the same computation.
            for definition in measured.all.compactMap({ metrics[$0]?.series }) where !found.contains(definition) {
                found.append(definition)
            }
            if hasBandit { found.append(SeriesDefinition(.periods)) }
            if !found.isEmpty { series[id] = found }
        }
        for experiment in experiments.notable {
            add(experiment.details.metrics, of: experiment.id, hasBandit: experiment.details.bandit != nil)
        }
        for holdout in holdouts { add(holdout.metrics, of: holdout.id) }
        return series
    }
}

public import Bucketing
import Chronology
public import Definitions
import JSON
public import Storage

extension MetricDefinition {
    /// What is computed of users' events; `nil` if the totals of the goal itself have it.
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

    private var covariate: SeriesDefinition.Covariate {
        switch adjustment {
        case .none: .standard
        case .days(let days): .before(.days(Int64(days)))
        case .attribute(let name): .attribute(name)
        }
    }

    /// Users who reached a goal count once, also before their exposure, if their rate is adjusted as a mean.
    private var rateCap: Double? { adjustment == .none ? nil : 1 }
}

extension MetricDefinition.Term {
    fileprivate var term: SeriesDefinition.Term { .init(goal, measure == .count ? .count : .value) }
}

extension ProjectDefinitions {
    /// What is computed of users' events for the metrics and breakdowns of each experiment, and of each holdout, by its id.
    public var series: [Identifier: [SeriesDefinition]] {
        var series: [Identifier: [SeriesDefinition]] = [:]
        func add(_ measured: ExperimentMetrics, of id: Identifier, isBandit: Bool = false) {
            var found = measured.breakdowns.map { SeriesDefinition(.breakdown($0)) }
            for definition in measured.all.compactMap({ metrics[$0]?.series }) where !found.contains(definition) {
                found.append(definition)
            }
            if isBandit { found.append(SeriesDefinition(.periods)) }
            if !found.isEmpty { series[id] = found }
        }
        for experiment in experiments.notable {
            add(experiment.details.metrics, of: experiment.id, isBandit: experiment.details.bandit != nil)
        }
        for holdout in holdouts { add(holdout.metrics, of: holdout.id) }
        return series
    }
}

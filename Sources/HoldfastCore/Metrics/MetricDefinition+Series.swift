public import Bucketing
public import Definitions
import JSON
public import Storage

extension MetricDefinition {
    /// What is computed of users' events; `nil` if the totals of the goal itself have it.
    public var series: SeriesDefinition? {
        let end = window.map { Self.milliseconds($0) }
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
                .sum(.init(goal, .count), cap: rateCap), from: Self.milliseconds(from), to: Self.milliseconds(to),
                covariate: covariate)
        case .funnel: return SeriesDefinition(.funnel(goals), to: end)
        }
    }

    private var covariate: SeriesDefinition.Covariate {
        switch adjustment {
        case .none: .standard
        case .days(let days): .before(Self.milliseconds(Double(days)))
        case .attribute(let name): .attribute(name)
        }
    }

    /// Users who reached a goal count once, also before their exposure, if their rate is adjusted as a mean.
    private var rateCap: Double? { adjustment == .none ? nil : 1 }

    private static func milliseconds(_ days: Double) -> Timestamp { Timestamp((days * 86_400_000).rounded()) }
}

extension MetricDefinition.Term {
    fileprivate var term: SeriesDefinition.Term { .init(goal, measure == .count ? .count : .value) }
}

extension Datafile {
    /// What is computed of users' events for the metrics and breakdowns of each experiment, and of each holdout, by its id.
    public var series: [Identifier: [SeriesDefinition]] {
        guard let root = source.object else { return [:] }
        let details = ProjectDefinitions.experimentMembers(of: root) ?? JSONObject()
        var measured = details.map { member -> (id: Identifier, named: JSONValue?) in
            (Identifier(member.key), member.value.object?["metrics"])
        }
        let bandits = Set(details.filter { $0.value.object?["bandit"] != nil }.map { Identifier($0.key) })
        for holdout in HoldoutDefinition.lists.flatMap({ root.objects($0) }) {
            measured.append((holdout.identifier("id") ?? "", holdout[Annotations.member]?.object?["metrics"]))
        }
        var series: [Identifier: [SeriesDefinition]] = [:]
        var known: [Identifier: MetricDefinition]?
        for (id, named) in measured {
            let named = ExperimentMetrics(stored: named)
            let keys = named.all
            if known == nil, !keys.isEmpty {
                known = Dictionary(metrics.map { ($0.key, $0) }, uniquingKeysWith: { $1 })
            }
            var found = named.breakdowns.map { SeriesDefinition(.breakdown($0)) }
            for definition in keys.compactMap({ known?[$0]?.series }) where !found.contains(definition) {
                found.append(definition)
            }
            if bandits.contains(id) { found.append(SeriesDefinition(.periods)) }
            if !found.isEmpty { series[id] = found }
        }
        return series
    }
}

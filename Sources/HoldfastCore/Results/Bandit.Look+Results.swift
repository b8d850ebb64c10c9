import Bucketing
import Chronology
import Definitions
import Storage

extension Bandit.Look {
    /// Evaluates the users of an experiment for its bandit: reads them, and computes the chance of each variation to be
    /// the best one by the first primary metric. If no chances can be computed, ``reason`` explains why the weights
    /// stay.
    ///
    /// - Parameter bandit: the bandit of the experiment.
    static func read(
        _ bandit: Bandit, _ experiment: Experiment, of project: Project, at now: Instant, _ session: any StoreSession
    ) async throws -> Bandit.Look {
        var look = Bandit.Look()
        guard let key = project.metrics(of: experiment).primary.first, let metric = project.definitions.metrics[key]
        else {
            look.reason = "the experiment has no primary metric"
            return look
        }
        guard metric.statistic != .ratio else {
            look.reason = "the metric '\(key)' is a \(metric.kind.rawValue), which no bandit learns from"
            return look
        }
        let totals = try await ResultsReader(ResultsScope(experiment, in: project, .live, at: now), session)
            .totals(of: metric)
        guard let periods = totals.periods, let measured = totals.measured, !measured.isFilling else {
            look.reason = "the users of the metric '\(key)' are still being counted"
            return look
        }
        let ids = experiment.variations.map(\.id)
        let counted = measured.counted(at: now)
        let results = AdaptiveResults(measured.tally, periods, of: ids, counted)
        look.users = results.users
        let tallies = counted(measured.tally).byVariation
        let small = experiment.variations.filter { tallies[$0.id]?.counted ?? 0 < bandit.leastUsers }.map(\.key.string)
        guard small.isEmpty else {
            look.reason = "fewer than \(bandit.leastUsers) users in \(small.joined(separator: ", "))"
            return look
        }
        guard let chances = results.chances(metric.statistic, isDecrease: metric.direction == .decrease) else {
            look.reason = "no user has done what the metric '\(key)' counts"
            return look
        }
        look.chances = Dictionary(zip(ids, chances), uniquingKeysWith: { first, _ in first })
        return look
    }
}

extension MeasuredMetric {
    /// Returns a function that removes users from a tally: those whose time window has not ended, so that they may
    /// still do what the metric counts.
    fileprivate func counted(at now: Instant) -> (ExperimentTally) -> ExperimentTally {
        let lastDay = ResultsFilter().lastDay(definition, at: now)
        return { tally in
            guard let lastDay else { return tally }
            return tally.enrolled(on: Int64.min...lastDay)
        }
    }
}

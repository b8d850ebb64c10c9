import Bucketing
import Chronology
public import Definitions
import Storage

/// The stored totals of an experiment for a goal or a metric, as ``ResultsReader`` reads them.
///
/// Reading totals and computing results are separate steps, because computing may take long and must not run on an
/// event loop.
public struct ResultsTotals: Sendable {
    let scope: ResultsScope
    /// The tally of the goal or the metric.
    var tally: ExperimentTally
    /// The metric; `nil` for a goal.
    var measured: MeasuredMetric?
    /// The tallies by allocation period; `nil` unless the experiment has a bandit.
    var periods: BreakdownTally?
    /// Other goals that exposed users reached; empty unless nobody reached the requested goal.
    var otherGoals: [Identifier] = []
    /// The frozen totals that the query requests; `nil` for current totals.
    var frozen: FrozenResults?
    /// The totals of single users; `nil` for frozen or capped totals, and if a few users cannot have most of the sum.
    var userTotals: UserTotals?
    /// The totals by the values of an attribute; `nil` unless the query requests a breakdown.
    var groups: BreakdownResults.Totals?

    var experiment: Experiment { scope.experiment }

    /// Returns the totals of some of the users.
    func of(_ tally: ExperimentTally, _ measured: MeasuredMetric?) -> ResultsTotals {
        ResultsTotals(scope: scope, tally: tally, measured: measured, frozen: frozen)
    }

    /// The experiment for which results are computed: as it is now, or as it was when the totals were frozen.
    private struct Subject {
        let experiment: Experiment
        /// The keys of former variations, by id.
        let formerKeys: [Identifier: Identifier]
        let now: Instant
    }

    /// Returns the current experiment, or the frozen one if the totals were frozen.
    ///
    /// - Throws: 503 if the frozen experiment does not compile.
    private func subject() throws(CoreError) -> Subject {
        guard let frozen else {
            return Subject(
                experiment: experiment, formerKeys: scope.project.definitions.retiredVariations(of: experiment),
                now: scope.now)
        }
        let former = try FrozenExperiment(frozen.definition)
        return Subject(
            experiment: former.experiment, formerKeys: former.retiredVariations, now: frozen.frozenAt)
    }

    /// Computes the results, with those of each group if the query requests a breakdown.
    ///
    /// - Throws: 422 if the baseline does not exist; 503 if the frozen experiment does not compile.
    public func results() throws(CoreError) -> ExperimentResults {
        let subject = try subject()
        var results = try results(scope.query, of: subject)
        guard let groups else { return results }
        results.breakdown = try BreakdownResults(groups, of: results) { tally, measured throws(CoreError) in
            try of(tally, measured).results(scope.query, of: subject)
        }
        return results
    }

    /// Computes the results for each day of enrollment.
    public func series() throws(CoreError) -> ResultsSeries {
        let subject = try subject()
        return try ResultsSeries(results(scope.query, of: subject)) { query throws(CoreError) in
            try results(query, of: subject)
        }
    }

    /// Computes the results without groups.
    private func results(_ query: ResultsQuery, of subject: Subject) throws(CoreError) -> ExperimentResults {
        var results = try ExperimentResults(
            subject.experiment, sdkKey: scope.project.sdkKey, query, tally, of: measured, periods: periods,
            otherGoals: otherGoals, formerKeys: subject.formerKeys, frozenAt: frozen?.frozenAt, now: subject.now)
        results.userTotals = userTotals
        return results
    }
}

/// The stored totals of all metrics of a plan.
public struct PlanTotals: Sendable {
    let metrics: [(role: Verdict.Role, totals: ResultsTotals)]
    /// See ``MeasuredPlan/alpha``.
    let alpha: Double

    /// The totals of the most important metric.
    public var first: ResultsTotals? { metrics.first?.totals }

    /// Computes the results of all metrics, with the verdict.
    ///
    /// - Returns: `nil` if there are no metrics.
    public func results() throws(CoreError) -> PlanResults? {
        var results: [(role: Verdict.Role, results: ExperimentResults)] = []
        for (role, totals) in metrics { results.append((role, try totals.results())) }
        return PlanResults(results, alpha: alpha)
    }
}

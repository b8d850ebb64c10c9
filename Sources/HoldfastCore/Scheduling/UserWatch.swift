import Bucketing
import Chronology
import Definitions
import JSON
import Statistics
import Storage

/// The users of an experiment as background jobs see them: their number, their split, and the alarms about them.
///
/// The ``ExperimentScheduler`` reads a watch to decide whether the next step of a ramp is due, and the
/// ``ExperimentMonitor`` reports the alarms. There are three alarms: the split is wrong (``SampleRatioCheck``), a
/// guardrail is worse than its margin allows, or a primary metric is worse.
struct UserWatch: Sendable, Equatable {
    /// The number of users, and the p-value of the test of their split.
    var evidence: Ramp.Evidence
    /// The number of exposures that happened while the experiment was not running.
    var notRunning = 0
    /// The alarms as sentences, by kind.
    var alarms: [ExperimentWarning: String] = [:]
    /// The new look of the experiment's bandit; `nil` if no look is due. Only the scheduler sets it.
    var banditLook: Bandit.Look?

    /// All alarms in one text; `nil` if there are none.
    var alarm: String? {
        alarms.isEmpty ? nil : ExperimentWarning.allCases.compactMap { alarms[$0] }.joined(separator: "; ")
    }

    /// The values that the rules of ramps and bandits use.
    var users: WatchedUsers { WatchedUsers(evidence: evidence, alarm: alarm, look: banditLook) }
}

// MARK: - Reading

extension UserWatch {
    /// The maximum probability that an experiment ever raises a false alarm about a metric. The limit holds for all
    /// metrics and variations together, at any number of looks.
    static let alpha = 0.05

    /// Reads the users of an experiment, and raises alarms about their split, guardrails and primary metrics.
    static func read(
        _ experiment: Experiment, of project: Project, at now: Instant, _ session: any StoreSession
    ) async throws -> UserWatch {
        let tally = try await session.read(.users(experimentID: experiment.id))
        return try await read(experiment, of: project, tally, at: now, session)
    }

    /// Raises the alarms as ``read(_:of:at:_:)`` does, for users that were read already.
    ///
    /// - Parameter tally: the users of the experiment.
    static func read(
        _ experiment: Experiment, of project: Project, _ tally: ExperimentTally, at now: Instant,
        _ session: any StoreSession
    ) async throws -> UserWatch {
        var watch = UserWatch(experiment, tally)
        let plan = project.metrics(of: experiment)
        guard !plan.isEmpty else { return watch }
        let guardrails = plan.guardrails.map { WatchedMetric(key: $0.metric, role: .guardrail(margin: $0.margin)) }
        let metrics = guardrails + plan.primary.map { WatchedMetric(key: $0, role: .primary) }
        let reader = ResultsReader(ResultsScope(experiment, in: project, .live, at: now), session)
        var comparisons: [Verdict.Comparison] = []
        for watched in metrics {
            guard let metric = project.definitions.metrics[watched.key] else { continue }
            comparisons += try await Self.comparisons(of: metric, as: watched.role, reader)
        }
        // Metrics whose totals are still being filled count as tested, so that the level does not change later.
        let expectedTests = metrics.count * (experiment.variations.count - 1)
        watch.add(
            comparisons, experiment.variations.map(\.key.string), tests: max(comparisons.count, expectedTests))
        return watch
    }

    /// A metric that may raise an alarm.
    private struct WatchedMetric {
        let key: Identifier
        let role: Verdict.Role
    }

    /// Reads the totals of a metric and compares each variation with the baseline: the metric itself and, for some
    /// guardrails, the share of users with any event (``ExperimentResults/shareRole(_:)``).
    private static func comparisons(
        of metric: MetricDefinition, as role: Verdict.Role, _ reader: ResultsReader
    ) async throws -> [Verdict.Comparison] {
        let totals = try await reader.totals(of: metric)
        // While the totals are being filled with earlier events, users lack some of their events.
        guard totals.measured?.isFilling == false else { return [] }
        let results = try totals.results()
        let compared = results.variations.indices.filter { !results.variations[$0].isBaseline }
        var comparisons = compared.map { results.comparison(role, of: $0) }
        if let shareRole = results.shareRole(role) {
            comparisons += compared.map { results.comparison(shareRole, of: $0) }
        }
        return comparisons
    }

    /// Raises the alarm about the split of the users, without reading any metrics.
    init(_ experiment: Experiment, _ tally: ExperimentTally) {
        let check = SampleRatioCheck(tally, of: experiment)
        let users = tally.variations.reduce(0) { $0 + $1.counted + $1.multipleVariations }
        evidence = Ramp.Evidence(users: users, sampleRatio: check.pValue)
        notRunning = tally.notRunning
        if check.isMismatch, let p = check.pValue {
            alarms[.sampleRatio] =
                "the users are not split as the traffic allocation says (p \(ExperimentResults.short(p)))"
        }
    }
}

// MARK: - Alarms about metrics

extension UserWatch {
    /// Adds an alarm for each comparison in which a variation is certainly worse.
    ///
    /// - Parameters:
    ///   - names: the names of the variations.
    ///   - tests: the number of tests that share the level ``alpha`` (Bonferroni's correction).
    mutating func add(_ comparisons: [Verdict.Comparison], _ names: [String], tests: Int) {
        let alpha = Self.alpha / Double(max(1, tests))
        for comparison in comparisons where comparison.isWorse(alpha: alpha) {
            guard let effect = comparison.evidence.map({ EffectSize($0, alpha: alpha, unit: comparison.unit) }) else {
                continue
            }
            let alarm = "\(comparison.alarmSentence) in '\(names[comparison.variation])' (\(effect))"
            let kind = comparison.alarmKind
            alarms[kind] = [alarms[kind], alarm].compactMap { $0 }.joined(separator: "; ")
        }
    }
}

extension Verdict.Comparison {
    /// Whether the variation is certainly worse than the baseline; for a guardrail by more than its margin.
    ///
    /// - Parameter alpha: the maximum probability that this function ever returns `true` for a variation that is not
    ///   worse, or that is worse than the baseline by no more than the margin of a guardrail.
    func isWorse(alpha: Double) -> Bool {
        let edge = role.margin?.edge(isDecrease: isDecrease) ?? .noEffect
        guard let evidence, evidence.pValue(edge) < alpha else { return false }
        return evidence.contrast.isAbove(edge) == isDecrease
    }

    /// The kind of alarm that the comparison raises if the variation is certainly worse.
    fileprivate var alarmKind: ExperimentWarning {
        switch role {
        case .guardrail, .shareOfGuardrail: .guardrail
        case .primary, .secondary: .primary
        }
    }

    /// The alarm as a sentence, without the variation and the effect.
    fileprivate var alarmSentence: String {
        switch role {
        case .guardrail(let margin):
            "the guardrail '\(metric)' is worse than its margin of \(margin.text(in: unit)) allows"
        case .shareOfGuardrail(let margin):
            "the share of users behind the guardrail '\(metric)' is worse than its margin of \(margin) allows"
        case .primary, .secondary: "the primary metric '\(metric)' is worse"
        }
    }
}

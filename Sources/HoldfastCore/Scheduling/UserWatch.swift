import Bucketing
import Chronology
import Definitions
import JSON
import Statistics
import Storage

/// The state of an experiment's users, and the alarms about them. Ramps decide by it whether their next step is due,
/// and the ``ExperimentMonitor`` reports the alarms.
struct UserWatch: Sendable, Equatable {
    /// The number of users, and the p-value of the test of their split.
    var evidence: Ramp.Evidence
    /// The number of exposures that happened while the experiment was not running.
    var notRunning = 0
    /// The alarms as sentences, by kind.
    var alarms: [ExperimentWarning: String] = [:]
    /// What the experiment's bandit has found; `nil` if it has not looked. Only the scheduler makes it look, when a
    /// look is due.
    var bandit: Bandit.Look?

    /// All alarms in one text; `nil` if there are none.
    var alarm: String? {
        alarms.isEmpty ? nil : ExperimentWarning.allCases.compactMap { alarms[$0] }.joined(separator: "; ")
    }

    /// The state as the rules of ramps and bandits use it.
    var users: WatchedUsers { WatchedUsers(evidence: evidence, alarm: alarm, look: bandit) }
}

extension UserWatch {
    /// The maximum probability of a false alarm about metrics: that an experiment in which no metric is worse, or worse
    /// than its margin allows, ever raises one. It holds for all metrics and variations together, at any number of
    /// looks.
    static let alpha = 0.05

    /// Reads the users of an experiment, and its guardrails and primary metrics.
    static func read(
        _ experiment: Experiment, of project: Project, at now: Instant, _ session: any StoreSession
    ) async throws -> UserWatch {
        let tally = try await session.read(.users(experimentID: experiment.id))
        return try await read(experiment, of: project, tally, at: now, session)
    }

    /// Reads the guardrails and primary metrics of an experiment.
    ///
    /// - Parameter tally: the users of the experiment, which were read already.
    static func read(
        _ experiment: Experiment, of project: Project, _ tally: ExperimentTally, at now: Instant,
        _ session: any StoreSession
    ) async throws -> UserWatch {
        var watch = UserWatch(experiment, tally)
        let plan = project.metrics(of: experiment)
        guard !plan.isEmpty else { return watch }
        let watched: [(Verdict.Role, Identifier)] =
            plan.guardrails.map { (.guardrail(margin: $0.margin), $0.metric) } + plan.primary.map { (.primary, $0) }
        let reader = ResultsReader(ResultsScope(experiment, in: project, .live, at: now), session)
        var comparisons: [Verdict.Comparison] = []
        let others = experiment.variations.count - 1
        for (role, key) in watched {
            guard let metric = project.definitions.metrics[key] else { continue }
            let totals = try await reader.totals(of: metric)
            // While the totals are being filled with earlier events, users lack some of their events.
            guard totals.measured?.isFilling == false else { continue }
            let results = try totals.results()
            let indices = results.variations.indices.filter { !results.variations[$0].isBaseline }
            for role in [role, results.shareRole(role)].compactMap({ $0 }) {
                comparisons += indices.map { results.comparison(role, of: $0) }
            }
        }
        // Metrics whose totals are still being filled count as tested, so that the level does not change later.
        watch.add(
            comparisons, experiment.variations.map(\.key.string), tests: max(comparisons.count, watched.count * others))
        return watch
    }

    /// Checks the split of the users, without any metrics.
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
            let kind: ExperimentWarning
            let sentence: String
            switch comparison.role {
            case .guardrail(let margin):
                kind = .guardrail
                sentence =
                    "the guardrail '\(comparison.metric)' is worse than its margin of \(margin.text(in: comparison.unit)) "
                    + "allows"
            case .shareOfGuardrail(let margin):
                kind = .guardrail
                sentence =
                    "the share of users behind the guardrail '\(comparison.metric)' is worse than its margin of "
                    + "\(margin) allows"
            case .primary, .secondary:
                kind = .primary
                sentence = "the primary metric '\(comparison.metric)' is worse"
            }
            let alarm = "\(sentence) in '\(names[comparison.variation])' (\(effect))"
            alarms[kind] = [alarms[kind], alarm].compactMap { $0 }.joined(separator: "; ")
        }
    }
}

extension Verdict.Comparison {
    /// Whether the variation is certainly worse than the baseline; for a guardrail by more than its margin.
    ///
    /// - Parameter alpha: the maximum probability that this is ever true of a variation that is no worse, or no worse
    ///   than the margin.
    func isWorse(alpha: Double) -> Bool {
        let edge = role.margin?.edge(isDecrease: isDecrease) ?? .noEffect
        guard let evidence, evidence.pValue(edge) < alpha else { return false }
        return evidence.contrast.isAbove(edge) == isDecrease
    }
}

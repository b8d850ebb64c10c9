import Bucketing
import Chronology
import Definitions
import JSON
import Statistics
import Storage

/// What is known of the users of an experiment, and what is wrong with it.
struct UserWatch: Sendable, Equatable {
    var evidence: Ramp.Evidence
    /// The number of exposures that happened while the experiment was not running.
    var notRunning = 0
    /// In sentences, by the kind of the alarm.
    var alarms: [ExperimentWarning: String] = [:]
    /// What the experiment's bandit has found; only the scheduler asks it, when it is due.
    var bandit: Bandit.Look?

    /// `nil` if nothing is wrong.
    var alarm: String? {
        alarms.isEmpty ? nil : ExperimentWarning.allCases.compactMap { alarms[$0] }.joined(separator: "; ")
    }

    /// What decides whether a step is due.
    var users: WatchedUsers { WatchedUsers(evidence: evidence, alarm: alarm, look: bandit) }
}

extension UserWatch {
    /// The probability that an experiment in which nothing is worse than its margin allows ever raises an alarm, for all
    /// metrics and variations together, however often they are looked at.
    static let alpha = 0.05

    /// Reads what a store has of the users of an experiment, and of its guardrails.
    static func read(
        _ experiment: Experiment, of project: Project, at now: Instant, _ session: any StoreSession
    ) async throws -> UserWatch {
        let tally = try await session.read(.users(experimentID: experiment.id))
        return try await read(experiment, of: project, tally, at: now, session)
    }

    /// - Parameter tally: the users of the experiment.
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
            // While earlier events are being filled in, some users lack what they did.
            guard totals.measured?.isFilling == false else { continue }
            let results = try totals.results()
            let indices = results.variations.indices.filter { !results.variations[$0].isBaseline }
            for role in [role, results.shareRole(role)].compactMap({ $0 }) {
                comparisons += indices.map { results.comparison(role, of: $0) }
            }
        }
        watch.add(
            comparisons, experiment.variations.map(\.key.string), tests: max(comparisons.count, watched.count * others))
        return watch
    }

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
    /// Adds what is certainly worse, by comparisons that share one level.
    mutating func add(_ comparisons: [Verdict.Comparison], _ names: [String], tests: Int) {
        let alpha = Self.alpha / Double(max(1, tests))
        for comparison in comparisons where comparison.isWorse(alpha: alpha) {
            guard let effect = comparison.evidence.map({ EffectSize($0, alpha: alpha, unit: comparison.unit) }) else {
                continue
            }
            let (kind, sentence): (ExperimentWarning, String) =
                switch comparison.role {
                case .guardrail(let margin):
                    (
                        .guardrail,
                        "the guardrail '\(comparison.metric)' is worse than its margin of \(margin.text(in: comparison.unit)) "
                            + "allows"
                    )
                case .shareOfGuardrail(let margin):
                    (
                        .guardrail,
                        "the share of users behind the guardrail '\(comparison.metric)' is worse than its margin of "
                            + "\(margin) allows"
                    )
                case .primary, .secondary: (.primary, "the primary metric '\(comparison.metric)' is worse")
                }
            let alarm = "\(sentence) in '\(names[comparison.variation])' (\(effect))"
            alarms[kind] = [alarms[kind], alarm].compactMap { $0 }.joined(separator: "; ")
        }
    }
}

extension Verdict.Comparison {
    /// Whether the variation is certainly worse: by more than the margin of a guardrail, or at all.
    ///
    /// - Parameter alpha: the probability of ever saying so of a variation that is as good as that.
    func isWorse(alpha: Double) -> Bool {
        let edge = role.margin?.edge(isDecrease: isDecrease) ?? .noEffect
        guard let evidence, evidence.pValue(edge) < alpha else { return false }
        return evidence.contrast.isAbove(edge) == isDecrease
    }
}

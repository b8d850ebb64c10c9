import Bucketing
import JSON
import Storage

/// What is known of the users of an experiment, and what is wrong with it.
struct UserWatch: Sendable, Equatable {
    var evidence: Ramp.Evidence
    /// In sentences, by the kind of the alarm.
    var alarms: [ExperimentWarning: String] = [:]
    /// What the experiment's bandit has found; only the scheduler asks it, when it is due.
    var bandit: Bandit.Look?

    /// `nil` if nothing is wrong.
    var alarm: String? {
        alarms.isEmpty ? nil : ExperimentWarning.allCases.compactMap { alarms[$0] }.joined(separator: "; ")
    }
}

extension UserWatch {
    /// The probability that a metric which is not worse than its margin allows ever raises an alarm, for all guardrails
    /// and variations of an experiment together, however often they are looked at.
    static let guardrailAlpha = 0.05

    /// Reads what a store has of the users of an experiment, and of its guardrails.
    static func read(
        _ experiment: Experiment, of project: Project, at now: Timestamp, _ session: any StoreSession
    ) async throws -> UserWatch {
        let tally = try await session.read(.users(experimentID: experiment.id))
        return try await read(experiment, of: project, tally, at: now, session)
    }

    /// - Parameter tally: the users of the experiment.
    static func read(
        _ experiment: Experiment, of project: Project, _ tally: ExperimentTally, at now: Timestamp,
        _ session: any StoreSession
    ) async throws -> UserWatch {
        var watch = UserWatch(experiment, tally)
        guard project.mayHaveMetrics(experiment) else { return watch }
        let guardrails = project.metrics(of: experiment).guardrails
        var query = try ResultsQuery([:])
        query.confidence = 1 - guardrailAlpha
        let tests = guardrails.count * max(1, experiment.variations.count - 1)
        for guardrail in guardrails {
            guard let metric = project.datafile.metric(key: guardrail.metric) else { continue }
            let measured = try await MeasuredMetric.read(metric, of: experiment.id, frozenAt: nil, session).measured
            // While earlier events are being filled in, some users lack what they did.
            guard !measured.isFilling else { continue }
            let periods = try await AdaptiveResults.read(
                measured.name, of: experiment, in: project, frozenAt: nil, session)
            let results = try ExperimentResults(
                experiment, sdkKey: project.sdkKey, query, measured.tally, of: measured, periods: periods, now: now)
            guard let alarm = results.alarm(of: guardrail, alpha: guardrailAlpha / Double(tests)) else { continue }
            watch.alarms[.guardrail] = [watch.alarms[.guardrail], alarm].compactMap { $0 }.joined(separator: "; ")
        }
        return watch
    }

    init(_ experiment: Experiment, _ tally: ExperimentTally) {
        let check = SampleRatioCheck(tally, of: experiment)
        let users = tally.variations.reduce(0) { $0 + $1.counted + $1.multipleVariations }
        evidence = Ramp.Evidence(users: users, sampleRatio: check.pValue)
        if check.isMismatch, let p = check.pValue {
            alarms[.sampleRatio] =
                "the users are not split as the traffic allocation says (p \(ExperimentResults.short(p)))"
        }
    }
}

extension ExperimentResults {
    /// Returns a sentence if a variation is certainly worse than a guardrail's margin allows; `nil` if none is.
    ///
    /// - Parameter alpha: the level of the always-valid interval of each variation.
    fileprivate func alarm(of guardrail: ExperimentMetrics.Guardrail, alpha: Double) -> String? {
        // With few users the approximation does not hold.
        guard !warnings.contains(where: { ["few_users", "no_exposures"].contains($0.code) }) else { return nil }
        let isDecrease = measured?.definition.direction == .decrease
        let worse = variations.filter { variation in
            variation.metric?.comparison?.sequence.map {
                guardrail.isBeyondMargin($0, isDecrease: isDecrease, alpha: alpha)
            } ?? false
        }
        guard !worse.isEmpty else { return nil }
        let names = worse.map { variation in
            let lift = variation.metric?.comparison?.lift ?? 0
            return "'\(variation.name)' (\((lift * 1_000).rounded() / 10)%)"
        }
        return "the guardrail '\(guardrail.metric)' is worse than its margin of \(guardrail.margin * 100)% allows in "
            + names.joined(separator: ", ")
    }
}

extension ExperimentMetrics.Guardrail {
    /// Whether a variation is certainly worse than the margin allows.
    ///
    /// - Parameters:
    ///   - isDecrease: whether less is better.
    ///   - alpha: the probability of ever saying so of a variation that is as good as the margin allows.
    func isBeyondMargin(_ sequence: ResultsComparison.Sequence, isDecrease: Bool, alpha: Double) -> Bool {
        guard let interval = sequence.interval(alpha: alpha) else { return false }
        return isDecrease ? interval.lowerBound > margin : interval.upperBound < -margin
    }
}

extension Project {
    /// Whether an experiment measures anything. Most do not, and their definitions need not be read.
    func mayHaveMetrics(_ experiment: Experiment) -> Bool {
        ProjectDefinitions.experimentMembers(of: datafile.source.object)?[experiment.id.string]?.object?["metrics"]
            != nil
    }
}

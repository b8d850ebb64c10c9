public import Bucketing
public import Chronology
public import Definitions
public import JSON
import Statistics
import Storage

/// The number of users and days that an experiment needs, and the effect that it can detect by a given time.
///
/// The estimate follows the decision rule of ``Verdict``:
/// - α is divided by the number of comparisons of primary metrics, as in the first step of Holm's procedure. A
///   guardrail is tested with the whole α.
/// - β (1 minus the power) is divided by the number of guardrails plus one, because a variation is shipped only if all
///   guardrails are shown to be no worse (Schultzberg, Ankargren and Frånberg, Risk-aware product decisions in A/B
///   tests with multiple metrics, 2024).
///
/// The request has the mean and the standard deviation of the baseline and the traffic, or they are observed in this
/// experiment or in others. ``SampleSizeScenario`` computes the needs from these numbers.
public struct SampleSizeEstimate: Sendable {
    /// The parameters of the decision rule.
    public struct Rule: Sendable {
        /// The maximum probability of ever deciding for a difference that does not exist.
        public var alpha = DecisionRule.defaultAlpha
        /// The probability of detecting the effect of interest if it exists.
        public var power = DecisionRule.defaultPower
        /// The minimum effect of interest, as a share of the baseline's mean.
        public var minimumEffect: Double?
        public var metrics = ExperimentMetrics()
        /// Whether the experiment has a bandit. Its users are weighted, so metrics are not adjusted by CUPED.
        var isOfBandit = false

        /// The number of primary metrics, by which α is divided.
        var primaryMetrics: Int { max(1, metrics.primary.count) }
        /// The number of guardrails, by which β is divided.
        var guardrails: Int { metrics.guardrails.count }

        /// Creates the rule by which an experiment is decided.
        public init(of experiment: Experiment, in project: Project) {
            guard let details = project.definitions.experiments[experiment.key]?.details else { return }
            alpha = details.plan.alpha ?? alpha
            power = details.plan.power ?? power
            minimumEffect = details.plan.minimumEffect
            metrics = details.metrics
            isOfBandit = details.bandit != nil
        }
    }

    /// The users and days that are needed to detect the effect.
    public struct Needs: Sendable {
        /// The number of users of all variations; `nil` if the effect is impossible.
        public var users: Double?
        /// The number of days from now; `nil` if the traffic is unknown, or if it takes more than ten years.
        public var days: Double?
        /// The smallest effect that is detected after the requested number of days; `nil` if no days are requested, or
        /// if there is no such effect.
        public var detectableEffect: Double?
    }

    /// The variations of an experiment and their shares of its users.
    private struct Split: Sendable {
        /// The share of the experiment's users that each variation gets.
        let shares: [Double]
        /// The index of the baseline among the variations.
        let baselineIndex: Int
        /// The indices of the variations that are compared with the baseline: all others that have traffic.
        let compared: [Int]

        /// - Throws: 422 if the baseline or all other variations have no traffic.
        init(of experiment: Experiment) throws(CoreError) {
            let weights = experiment.variations.map { Double(experiment.shares[$0.id] ?? 0) }
            let sum = weights.reduce(0, +)
            let baselineID = try ExperimentResults.baseline(of: experiment, nil).id
            let baselineIndex = experiment.variations.firstIndex { $0.id == baselineID } ?? 0
            let compared = weights.indices.filter { $0 != baselineIndex && weights[$0] > 0 }
            guard !compared.isEmpty, weights[baselineIndex] > 0 else {
                throw CoreError(
                    .unprocessable, "the baseline and another variation of '\(experiment.key)' must have traffic")
            }
            self.shares = weights.map { sum > 0 ? $0 / sum : 0 }
            self.baselineIndex = baselineIndex
            self.compared = compared
        }
    }

    /// A number of the request, or one that was observed in an experiment.
    private struct Observed<Value: Sendable>: Sendable {
        let value: Value
        /// The key of the experiment in which the value was observed; `nil` if the request has the value.
        let source: Identifier?
    }

    /// A cap that would shorten the experiment, and the needs with this cap.
    private struct CapProposal: Sendable {
        let cap: ProposedCap
        let oneLook: Needs
        let anyTime: Needs
    }

    /// The minimum number of users of the baseline from which a mean is estimated.
    private static let fewestUsers = 100
    /// The minimum number of these users who reached the goal.
    private static let fewestConverted = 10

    private let experiment: Experiment
    private let metric: MetricDefinition
    /// Whether the request is about a goal, without the definition of a metric.
    private let isGoal: Bool
    /// The margin of a guardrail as a share of the baseline's mean; `nil` if the metric is to be improved.
    private let margin: Double?
    let rule: Rule
    /// The effect or the margin in the response; `nil` if only the detectable effect is requested.
    private let effect: Double?
    /// The number of comparisons of primary metrics, by which α is divided.
    private let comparisons: Int
    /// The α of one comparison.
    private let alpha: Double
    /// The power of one comparison.
    private let power: Double
    private let baseline: Observed<Power.Baseline>
    /// The number of users of all variations per day; `nil` if it is unknown.
    private let usersPerDay: Observed<Double>?
    /// The current number of users of each variation.
    private let enrolled: [Double]
    private let split: Split
    /// The requested number of days from now.
    private let days: Double?
    private let scenario: SampleSizeScenario
    /// The needs for one look that is planned in advance.
    public let oneLook: Needs
    /// The needs for looks at any time.
    public let anyTime: Needs
    /// A cap that would shorten the experiment; `nil` if the metric has a cap, or if no cap would shorten it.
    private let proposal: CapProposal?

    /// - Parameters:
    ///   - metric: the metric of the request.
    ///   - own: the observations in the experiment itself.
    ///   - others: the observations in other experiments, which are used if there are too few in this one.
    /// - Throws: 422 if a required number is neither given nor observed.
    public init(
        _ request: SampleSizeRequest, _ rule: Rule, _ metric: MetricDefinition, own: ResultsTotals,
        others: [ResultsTotals], at now: Instant
    ) throws(CoreError) {
        let experiment = own.experiment
        self.experiment = experiment
        var metric = metric
        if rule.isOfBandit { metric.adjustment = .none }
        self.metric = metric
        isGoal = request.isAboutGoal
        var rule = rule
        rule.alpha = request.alpha ?? rule.alpha
        rule.power = request.power ?? rule.power
        self.rule = rule
        days = try request.days(from: now)

        let requestedMargin = Self.margin(request, rule, metric, isGoal: isGoal)
        // A defined minimum effect has no sign: it is an effect in the direction of the metric.
        let sign: Double = metric.direction == .decrease ? -1 : 1
        let minimumEffect = request.minimumEffect ?? (metric.minimumEffect ?? rule.minimumEffect).map { sign * $0 }
        guard requestedMargin != nil || minimumEffect != nil || days != nil else {
            throw CoreError(
                .unprocessable,
                "`minimum_effect` or `margin` is required to compute users, or `days` or `until` to compute the effect",
                at: ["minimum_effect"])
        }

        split = try Split(of: experiment)
        comparisons = rule.primaryMetrics * split.compared.count
        alpha = requestedMargin == nil ? rule.alpha / Double(comparisons) : rule.alpha
        power = 1 - (1 - rule.power) / Double(1 + rule.guardrails)

        let sources = request.source == nil ? [own] + others : others
        baseline = try Self.baseline(request, metric, sources)
        switch requestedMargin {
        case .share(let share): margin = share
        case .absolute(let number): margin = number / abs(baseline.value.mean)
        case nil: margin = nil
        }
        effect = margin ?? minimumEffect
        usersPerDay = Self.usersPerDay(request, sources, of: experiment, at: now)
        guard days == nil || usersPerDay != nil else {
            throw CoreError(
                .unprocessable,
                "`users_per_day` is required, because nobody was enrolled on a whole day in \(Self.list(sources))",
                at: ["users_per_day"])
        }

        let tallies = own.tally.byVariation
        enrolled = experiment.variations.map { Double(tallies[$0.id]?.counted ?? 0) }
        // For a guardrail, the test must exclude that the metric has become worse by the margin.
        let testedEffect = margin.map { -sign * $0 } ?? effect
        scenario = SampleSizeScenario(
            shares: split.shares, enrolled: enrolled, baselineIndex: split.baselineIndex, compared: split.compared,
            usersPerDay: usersPerDay?.value, effect: testedEffect, days: days,
            isDecrease: testedEffect.map { $0 < 0 } ?? false)
        (oneLook, anyTime) = scenario.needs(baseline.value, alpha: alpha, power: power, isGuardrail: margin != nil)
        proposal = Self.proposal(
            metric, baseline, sources, scenario, alpha: alpha, power: power, isGuardrail: margin != nil)
    }

    /// Returns the needs for detecting the effect with another power.
    func needs(power: Double) -> (oneLook: Needs, anyTime: Needs) {
        scenario.needs(baseline.value, alpha: alpha, power: power, isGuardrail: margin != nil)
    }

    /// Returns the margin of the request, or else the margin of the metric if it is a guardrail of the experiment. A
    /// request with a minimum effect asks for an improvement of the metric, so there is no margin.
    private static func margin(
        _ request: SampleSizeRequest, _ rule: Rule, _ metric: MetricDefinition, isGoal: Bool
    ) -> ExperimentMetrics.Margin? {
        if let share = request.margin { return .share(share) }
        guard request.minimumEffect == nil, !isGoal else { return nil }
        return rule.metrics.guardrails.first { $0.metric == metric.key }?.margin
    }

    /// Returns the cap that would shorten the experiment, from the totals of users in the experiment in which the
    /// baseline was observed.
    ///
    /// - Returns: `nil` if the metric has a cap, or if no cap would shorten the experiment.
    private static func proposal(
        _ metric: MetricDefinition, _ baseline: Observed<Power.Baseline>, _ sources: [ResultsTotals],
        _ scenario: SampleSizeScenario, alpha: Double, power: Double, isGuardrail: Bool
    ) -> CapProposal? {
        let source = sources.first { $0.experiment.key == baseline.source }
        guard metric.lacksCap, let cap = source?.userTotals.flatMap({ ProposedCap($0) }) else { return nil }
        let limited = cap.limiting(mean: baseline.value.mean, standardDeviation: baseline.value.standardDeviation)
        let needs = scenario.needs(
            .mean(limited.mean, standardDeviation: limited.standardDeviation), alpha: alpha, power: power,
            isGuardrail: isGuardrail)
        return CapProposal(cap: cap, oneLook: needs.oneLook, anyTime: needs.anyTime)
    }

    // MARK: Observations

    /// Returns the mean and the standard deviation of the baseline. If the request does not have them, they are those
    /// that were observed in the first experiment with enough users.
    ///
    /// - Throws: 422 if no experiment has enough users.
    private static func baseline(
        _ request: SampleSizeRequest, _ metric: MetricDefinition, _ sources: [ResultsTotals]
    ) throws(CoreError) -> Observed<Power.Baseline> {
        if let mean = request.baseline {
            let value = request.standardDeviation.map { Power.Baseline.mean(mean, standardDeviation: $0) }
            return Observed(value: value ?? .rate(mean), source: nil)
        }
        for source in sources {
            if let value = try observedBaseline(metric, in: source) {
                return Observed(value: value, source: source.experiment.key)
            }
        }
        throw CoreError(
            .unprocessable,
            "`baseline` is required, because there are no \(fewestUsers) users of the baseline with "
                + "\(fewestConverted) who did what '\(metric.key)' counts in \(list(sources))", at: ["baseline"])
    }

    /// Returns the mean and the standard deviation of an experiment's baseline; `nil` if it has too few users.
    private static func observedBaseline(
        _ metric: MetricDefinition, in source: ResultsTotals
    ) throws(CoreError) -> Power.Baseline? {
        let id = try ExperimentResults.baseline(of: source.experiment, nil).id
        guard let tally = source.tally.variations.first(where: { $0.variationID == id }),
            tally.counted >= fewestUsers, tally.goal.converted >= fewestConverted
        else { return nil }
        let data = VariationData(tally)
        guard let sample = data.plannedSample(metric), sample.mean.isFinite, sample.variance > 0 else { return nil }
        guard metric.statistic == .rate, !metric.isAdjusted else {
            return .mean(sample.mean, standardDeviation: sample.variance.squareRoot())
        }
        return .rate(sample.mean)
    }

    /// Returns the number of users per day. If the request does not have it, it is observed in the first experiment in
    /// which users were enrolled. `nil` if no users were enrolled in any of the experiments.
    private static func usersPerDay(
        _ request: SampleSizeRequest, _ sources: [ResultsTotals], of experiment: Experiment, at now: Instant
    ) -> Observed<Double>? {
        if let given = request.usersPerDay { return Observed(value: given, source: nil) }
        for source in sources {
            guard let rate = EnrollmentRate(source.tally.days, at: now).usersPerDay, rate > 0 else { continue }
            let isOwn = source.experiment.id == experiment.id
            // Another experiment may have another share of the same traffic.
            let factor = isOwn || source.experiment.traffic <= 0 ? 1 : experiment.traffic / source.experiment.traffic
            return Observed(value: rate * factor, source: source.experiment.key)
        }
        return nil
    }

    /// Returns the keys of experiments for an error.
    private static func list(_ sources: [ResultsTotals]) -> String {
        sources.map { "'\($0.experiment.key)'" }.joined(separator: ", ")
    }
}

// MARK: - JSON

extension SampleSizeEstimate {
    /// The numbers of one metric, in the format of the response to `POST /v1/experiments/{key}/plan`.
    public var json: JSONValue {
        var object = JSONObject()
        object["experiment_key"] = JSONValue(experiment.key)
        object[isGoal ? "goal" : "metric"] = JSONValue(metric.key)
        object["kind"] = .string(metric.kind.rawValue)
        object["alpha"] = .number(rule.alpha)
        object["power"] = .number(rule.power)
        object[margin == nil ? "minimum_effect" : "margin"] = Self.json(effect)
        object["comparisons"] = .integer(Int64(comparisons))
        object["guardrails"] = .integer(Int64(rule.guardrails))
        object["alpha_per_comparison"] = .number(alpha)
        object["power_per_metric"] = .number(power)
        object["baseline"] = baselineJSON
        object["traffic"] =
            usersPerDay.map { usersPerDay in
                [
                    "users_per_day": .number(usersPerDay.value),
                    "from": usersPerDay.source.map { JSONValue($0) } ?? .null,
                ]
            } ?? .null
        object["enrolled"] = .integer(Int64(enrolled.reduce(0, +)))
        object["days"] = Self.json(days)
        object["one_look"] = json(oneLook)
        object["any_time"] = json(anyTime)
        object["proposed_cap"] = proposal.map { json($0) } ?? .null
        return .object(object)
    }

    private func json(_ proposal: CapProposal) -> JSONValue {
        let greatest = proposal.cap.greatest
        return [
            "cap": .shortest(proposal.cap.cap), "greatest_users": .integer(Int64(greatest.users)),
            "share_of_users": .number(greatest.shareOfUsers), "share_of_sum": .number(greatest.shareOfSum),
            "one_look": json(proposal.oneLook), "any_time": json(proposal.anyTime),
        ]
    }

    private var baselineJSON: JSONValue {
        [
            "variation_key": JSONValue(experiment.variations[split.baselineIndex].key),
            "mean": .number(baseline.value.mean), "standard_deviation": .number(baseline.value.standardDeviation),
            "from": baseline.source.map { JSONValue($0) } ?? .null,
        ]
    }

    /// Returns needs in the format of the response, with the number of users of each variation.
    func json(_ needs: Needs) -> JSONValue {
        let users = needs.users.map { total in split.shares.map { (total * $0).rounded(.up) } }
        let variations = zip(experiment.variations, users ?? []).map { variation, users -> JSONValue in
            ["variation_key": JSONValue(variation.key), "users": .shortest(users)]
        }
        return [
            "users": users.map { .shortest($0.reduce(0, +)) } ?? .null, "variations": .array(variations),
            "days": Self.json(needs.days), "detectable_effect": Self.json(needs.detectableEffect),
        ]
    }

    private static func json(_ number: Double?) -> JSONValue { number.map { .number($0) } ?? .null }
}

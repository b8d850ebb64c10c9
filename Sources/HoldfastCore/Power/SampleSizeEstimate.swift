public import Bucketing
public import Chronology
public import Definitions
public import JSON
import Statistics
import Storage

/// The number of users and days that an experiment needs, and the effect that it can detect by a given time.
///
/// The estimate follows the rule of the verdict. α is divided by the number of comparisons of primary metrics, as in
/// the first step of Holm's procedure; guardrails do not divide it. β (1 minus the power) is divided by the number of
/// guardrails plus one, because a variation is shipped only if all guardrails are shown to be no worse (Schultzberg,
/// Ankargren and Frånberg, Risk-aware product decisions in A/B tests with multiple metrics, 2024).
///
/// The mean, the standard deviation and the traffic are those of the request, or else those observed in this experiment
/// or in others. ``SampleSizeScenario`` computes the needs from them.
public struct SampleSizeEstimate: Sendable {
    /// The parameters of the decision rule.
    public struct Rule: Sendable {
        public var alpha = DecisionRule.defaultAlpha
        public var power = DecisionRule.defaultPower
        public var minimumEffect: Double?
        public var metrics = ExperimentMetrics()
        /// Whether the experiment has a bandit. Its users are weighted, and metrics are not adjusted.
        var isOfBandit = false

        /// The numbers of metrics by which α and β are divided.
        var primaryMetrics: Int { max(1, metrics.primary.count) }
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

    /// The users and days that are needed, for one look or for looks at any time.
    public struct Needs: Sendable {
        /// The number of users of all variations; `nil` if the effect is impossible.
        public var users: Double?
        /// The number of days from now; `nil` if the traffic is unknown, or if it takes more than ten years.
        public var days: Double?
        /// The smallest effect that is detected after the requested number of days; `nil` if no days are requested, or
        /// if there is no such effect.
        public var detectableEffect: Double?
    }

    /// A cap that would shorten the experiment, and the needs with it.
    private struct CapProposal {
        let cap: ProposedCap
        let one: Needs
        let always: Needs
    }

    /// The minimum number of users of the baseline, and of those who reached the goal, from which a mean is estimated.
    private static let fewestUsers = 100
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
    /// α and the power of one comparison.
    private let alpha: Double
    private let power: Double
    /// The mean and the standard deviation of the baseline, and the key of the experiment in which they were observed.
    private let baseline: (value: Power.Baseline, source: Identifier?)
    private let traffic: (usersPerDay: Double, source: Identifier?)?
    /// The current number of users of each variation.
    private let enrolled: [Double]
    /// The share of the experiment's users that each variation gets.
    private let shares: [Double]
    private let baselineIndex: Int
    /// The requested number of days from now.
    private let days: Double?
    private let scenario: SampleSizeScenario
    /// The needs for one look that is planned in advance.
    public let one: Needs
    /// The needs for looks at any time.
    public let always: Needs
    /// A cap that would shorten the experiment; `nil` if the metric has a cap, or if no cap would shorten it.
    private var proposal: CapProposal?

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
        let sign: Double = metric.direction == .decrease ? -1 : 1
        let minimum = request.minimumEffect ?? (metric.minimumEffect ?? rule.minimumEffect).map { sign * $0 }
        guard requestedMargin != nil || minimum != nil || days != nil else {
            throw CoreError(
                .unprocessable,
                "`minimum_effect` or `margin` is required to compute users, or `days` or `until` to compute the effect",
                at: ["minimum_effect"])
        }

        let weights = experiment.variations.map { Double(experiment.shares[$0.id] ?? 0) }
        let sum = weights.reduce(0, +)
        let baselineID = try ExperimentResults.baseline(of: experiment, nil).id
        baselineIndex = experiment.variations.firstIndex { $0.id == baselineID } ?? 0
        shares = weights.map { sum > 0 ? $0 / sum : 0 }
        let compared = shares.indices.filter { [baselineIndex] index in index != baselineIndex && weights[index] > 0 }
        guard !compared.isEmpty, weights[baselineIndex] > 0 else {
            throw CoreError(
                .unprocessable, "the baseline and another variation of '\(experiment.key)' must have traffic")
        }

        comparisons = rule.primaryMetrics * compared.count
        alpha = requestedMargin == nil ? rule.alpha / Double(comparisons) : rule.alpha
        power = 1 - (1 - rule.power) / Double(1 + rule.guardrails)
        let sources = request.source == nil ? [own] + others : others
        baseline = try Self.baseline(request, metric, sources)
        switch requestedMargin {
        case .share(let share): margin = share
        case .absolute(let number): margin = number / abs(baseline.value.mean)
        case nil: margin = nil
        }
        effect = margin ?? minimum
        // For a guardrail, the effect that must be excluded.
        let testedEffect = margin.map { -sign * $0 } ?? effect
        traffic = Self.traffic(request, sources, of: experiment, at: now)
        guard days == nil || traffic != nil else {
            throw CoreError(
                .unprocessable,
                "`users_per_day` is required, because nobody was enrolled on a whole day in \(Self.list(sources))",
                at: ["users_per_day"])
        }

        let tallies = own.tally.byVariation
        enrolled = experiment.variations.map { Double(tallies[$0.id]?.counted ?? 0) }
        scenario = SampleSizeScenario(
            shares: shares, enrolled: enrolled, baseline: baselineIndex, compared: compared,
            usersPerDay: traffic?.usersPerDay, effect: testedEffect, days: days,
            isDecrease: testedEffect.map { $0 < 0 } ?? false)
        (one, always) = scenario.needs(baseline.value, alpha: alpha, power: power, isGuardrail: margin != nil)

        let source = sources.first { $0.experiment.key == baseline.source }
        guard let cap = source?.userTotals.flatMap({ ProposedCap($0) }), metric.lacksCap else { return }
        let limited = cap.limiting(mean: baseline.value.mean, standardDeviation: baseline.value.standardDeviation)
        let needs = scenario.needs(
            .mean(limited.mean, standardDeviation: limited.standardDeviation), alpha: alpha, power: power,
            isGuardrail: margin != nil)
        proposal = CapProposal(cap: cap, one: needs.one, always: needs.always)
    }

    /// Returns the needs for detecting the effect with another power.
    func needs(power: Double) -> (one: Needs, always: Needs) {
        scenario.needs(baseline.value, alpha: alpha, power: power, isGuardrail: margin != nil)
    }

    /// Returns the margin of the request, or else that of the metric if it is a guardrail of the experiment; `nil` if
    /// the metric is to be improved, as by a request with a minimum effect.
    private static func margin(
        _ request: SampleSizeRequest, _ rule: Rule, _ metric: MetricDefinition, isGoal: Bool
    ) -> ExperimentMetrics.Margin? {
        if let share = request.margin { return .share(share) }
        guard request.minimumEffect == nil, !isGoal else { return nil }
        return rule.metrics.guardrails.first { $0.metric == metric.key }?.margin
    }

    // MARK: Observations

    /// Returns the mean and the standard deviation of the baseline, and the key of the experiment in which they were
    /// observed; `nil` for the key if the request has them.
    private static func baseline(
        _ request: SampleSizeRequest, _ metric: MetricDefinition, _ sources: [ResultsTotals]
    ) throws(CoreError) -> (Power.Baseline, Identifier?) {
        if let mean = request.baseline {
            let value = request.standardDeviation.map { Power.Baseline.mean(mean, standardDeviation: $0) }
            return (value ?? .rate(mean), nil)
        }
        for source in sources {
            let id = try ExperimentResults.baseline(of: source.experiment, nil).id
            guard let tally = source.tally.variations.first(where: { $0.variationID == id }),
                tally.counted >= fewestUsers, tally.goal.converted >= fewestConverted
            else { continue }
            let data = VariationData(tally)
            guard let sample = data.plannedSample(metric), sample.mean.isFinite, sample.variance > 0 else { continue }
            let value =
                metric.statistic == .rate && !metric.isAdjusted
                ? Power.Baseline.rate(sample.mean)
                : .mean(sample.mean, standardDeviation: sample.variance.squareRoot())
            return (value, source.experiment.key)
        }
        throw CoreError(
            .unprocessable,
            "`baseline` is required, because there are no \(fewestUsers) users of the baseline with \(fewestConverted) who "
                + "did what '\(metric.key)' counts in \(list(sources))", at: ["baseline"])
    }

    /// Returns the number of users per day, and the key of the experiment in which they were enrolled; `nil` for the
    /// key if the request has the number.
    private static func traffic(
        _ request: SampleSizeRequest, _ sources: [ResultsTotals], of experiment: Experiment, at now: Instant
    ) -> (Double, Identifier?)? {
        if let given = request.usersPerDay { return (given, nil) }
        for source in sources {
            guard let rate = EnrollmentRate(source.tally.days, at: now).usersPerDay, rate > 0 else { continue }
            let isOwn = source.experiment.id == experiment.id
            // Another experiment may have another share of the same traffic.
            let factor = isOwn || source.experiment.traffic <= 0 ? 1 : experiment.traffic / source.experiment.traffic
            return (rate * factor, source.experiment.key)
        }
        return nil
    }

    /// Returns the keys of experiments for an error.
    private static func list(_ sources: [ResultsTotals]) -> String {
        sources.map { "'\($0.experiment.key)'" }.joined(separator: ", ")
    }
}

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
            traffic.map { traffic in
                [
                    "users_per_day": .number(traffic.usersPerDay),
                    "from": traffic.source.map { JSONValue($0) } ?? .null,
                ]
            } ?? .null
        object["enrolled"] = .integer(Int64(enrolled.reduce(0, +)))
        object["days"] = Self.json(days)
        object["one_look"] = json(one)
        object["any_time"] = json(always)
        object["proposed_cap"] = proposal.map { json($0) } ?? .null
        return .object(object)
    }

    private func json(_ proposal: CapProposal) -> JSONValue {
        let greatest = proposal.cap.greatest
        return [
            "cap": .shortest(proposal.cap.cap), "greatest_users": .integer(Int64(greatest.users)),
            "share_of_users": .number(greatest.shareOfUsers), "share_of_sum": .number(greatest.shareOfSum),
            "one_look": json(proposal.one), "any_time": json(proposal.always),
        ]
    }

    private var baselineJSON: JSONValue {
        let (mean, deviation) = (baseline.value.mean, baseline.value.standardDeviation)
        return [
            "variation_key": JSONValue(experiment.variations[baselineIndex].key), "mean": .number(mean),
            "standard_deviation": .number(deviation), "from": baseline.source.map { JSONValue($0) } ?? .null,
        ]
    }

    /// Returns needs in the format of the response, with the number of users of each variation.
    func json(_ needs: Needs) -> JSONValue {
        let users = needs.users.map { total in shares.map { (total * $0).rounded(.up) } }
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

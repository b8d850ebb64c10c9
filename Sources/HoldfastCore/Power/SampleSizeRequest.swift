public import Bucketing
import Chronology
public import Definitions
public import JSON
import Statistics
import Storage

/// The body of `POST /v1/experiments/{key}/plan`: the metric to estimate, the effect or the time, and numbers to use
/// instead of observed ones.
public struct SampleSizeRequest: Sendable {
    /// The goal to estimate; `nil` for a metric.
    private var goal: Identifier?
    /// The key of the metric to estimate; `nil` for a goal, or for the metrics of the experiment.
    private var metric: Identifier?
    /// For a goal: the share of users who reach it, or the sum of its values per user.
    private var kind = MetricDefinition.Kind.conversion
    /// The minimum effect as a share of the baseline's mean; negative if a decrease is of interest.
    public var minimumEffect: Double?
    /// The margin by which a guardrail may become worse; `nil` if the metric is not a guardrail.
    public var margin: Double?
    /// The level of the verdict; `nil` to use that of the experiment.
    public var alpha: Double?
    /// The required power; `nil` to use that of the experiment.
    public var power: Double?
    /// The mean of the baseline; `nil` to use the observed one.
    var baseline: Double?
    /// The standard deviation of the baseline's users; `nil` to use the observed one.
    var standardDeviation: Double?
    /// The number of users of all variations per day; `nil` to use the observed enrollment.
    var usersPerDay: Double?
    /// The number of days from now for which the detectable effect is requested; see ``days(from:)``.
    private var days: Double?
    /// The time for which the detectable effect is requested, instead of ``days``.
    private var until: Instant?
    /// The experiment in which baseline and traffic are observed. If it is `nil`, they are observed in this experiment,
    /// or in the other experiments of its flags if there are too few observations in this one.
    public var source: Identifier?

    private static let members = [
        "goal", "kind", "metric", "minimum_effect", "margin", "alpha", "power", "baseline", "standard_deviation",
        "users_per_day", "days", "until", "from",
    ]

    /// Parses the body.
    ///
    /// - Throws: 400 if the value is not an object; 422 with every wrong member.
    public init(_ value: JSONValue) throws(CoreError) {
        var faults = FaultCollector()
        let object = try value.object("a plan", knowing: Self.members)
        readSubject(of: object, &faults)
        readNumbers(of: object, &faults)
        source = faults.collect(try object.optionalText("from")).map { Identifier($0) }
        if let error = CoreError(faults: faults.faults, "nothing was computed") { throw error }
    }

    /// Reads the goal or the metric.
    private mutating func readSubject(of object: JSONObject, _ faults: inout FaultCollector) {
        goal = faults.collect(try object.optionalText("goal")).map { Identifier($0) }
        metric = faults.collect(try object.optionalText("metric")).map { Identifier($0) }
        if metric != nil, goal != nil {
            faults.add("`goal` and `metric` must not be given together", at: ["metric"])
        }
        if let text = faults.collect(try object.optionalText("kind")) {
            switch MetricDefinition.Kind(rawValue: text) {
            case .conversion?: kind = .conversion
            case .total?: kind = .total
            default: faults.add("`kind` must be 'conversion' or 'total'; got '\(text)'", at: ["kind"])
            }
            if goal == nil { faults.add("`kind` must be given with `goal` only", at: ["kind"]) }
        }
    }

    /// Reads the effect, the time and the numbers that replace observed ones.
    private mutating func readNumbers(of object: JSONObject, _ faults: inout FaultCollector) {
        minimumEffect = faults.number(object, "minimum_effect", -1...10, "0.05 for 5% more, or -0.05 for 5% less")
        if minimumEffect.map({ abs($0) < 0.0001 }) ?? false {
            faults.add("`minimum_effect` must be at least 0.0001 in magnitude", at: ["minimum_effect"])
        }
        margin = faults.number(object, "margin", 0.0001...1, "0.02 for 2% of the baseline")
        if margin != nil, minimumEffect != nil {
            faults.add("`margin` and `minimum_effect` must not be given together", at: ["margin"])
        }
        alpha = faults.number(object, "alpha", DecisionRule.alphas, "0.05")
        power = faults.number(object, "power", DecisionRule.powers, "0.8")
        baseline = faults.number(object, "baseline", -1e15...1e15, "0.1 for 10% of users")
        standardDeviation = faults.number(object, "standard_deviation", 1e-15...1e15, "20")
        usersPerDay = faults.number(object, "users_per_day", 0.001...1e12, "1000")
        days = faults.number(object, "days", 0...ResultsPower.dayLimit, "14")
        until = faults.collect(try object.optionalTime("until"))
        if days != nil, until != nil { faults.add("`days` and `until` must not be given together", at: ["until"]) }
    }

    /// Whether a goal is to be estimated, without the definition of a metric.
    var isAboutGoal: Bool { goal != nil }

    /// Returns the metrics to estimate.
    ///
    /// A request is about a single metric if it has a goal, a metric, an effect, a margin or a baseline. This metric is
    /// the goal or the metric of the request, or else the first primary metric of the experiment. Its role is `nil`.
    /// Any other request is about all metrics that decide the experiment.
    ///
    /// - Throws: 422 if there is no metric, or if the metric cannot have the baseline of the request.
    public func metrics(
        _ rule: SampleSizeEstimate.Rule, of experiment: Experiment, in project: Project
    ) throws(CoreError) -> [(role: Verdict.Role?, metric: MetricDefinition)] {
        let first = try metric(rule, in: project)
        guard goal == nil, metric == nil, minimumEffect == nil, margin == nil, baseline == nil else {
            return [(nil, first)]
        }
        return (project.plan(of: experiment)?.metrics ?? []).filter { $0.role != .secondary }
            .map { (role: $0.role, metric: $0.metric) }
    }

    /// Returns the goal or metric of the request, or else the first primary metric.
    ///
    /// - Throws: 422 if there is no such metric, or if it cannot have the baseline of the request.
    private func metric(_ rule: SampleSizeEstimate.Rule, in project: Project) throws(CoreError) -> MetricDefinition {
        let found: MetricDefinition
        if let goal {
            // A goal can be estimated without the definition of a metric.
            var metric = MetricDefinition(key: goal, kind == .total ? .total : .conversion)
            metric.goal = goal
            metric.adjustment = .none
            found = metric
        } else {
            guard let key = metric ?? rule.metrics.primary.first else {
                throw CoreError(
                    .unprocessable, "`goal` or `metric` is required: the experiment has no primary metric", at: ["goal"]
                )
            }
            guard let metric = project.definitions.metrics[key] else {
                let hint = Spelling.hint(for: key, among: project.definitions.metrics.lazy.map(\.key))
                throw CoreError(.unprocessable, "`metric` must be defined; got '\(key)'\(hint)", at: ["metric"])
            }
            found = metric
        }
        try checkBaseline(of: found)
        return found
    }

    /// Checks the baseline of the request. A rate requires a mean between 0 and 1. Any other metric requires a mean
    /// other than 0 and a standard deviation.
    ///
    /// - Throws: 422 if the metric cannot have the baseline.
    private func checkBaseline(of metric: MetricDefinition) throws(CoreError) {
        guard metric.statistic == .rate else {
            guard (baseline == nil) == (standardDeviation == nil), baseline != 0 else {
                throw CoreError(
                    .unprocessable,
                    "`baseline`, which is not 0, and `standard_deviation` must be given together for the kind "
                        + "'\(metric.kind.rawValue)'", at: ["baseline"])
            }
            return
        }
        guard standardDeviation == nil else {
            throw CoreError(
                .unprocessable,
                "`standard_deviation` must be left out for the kind '\(metric.kind.rawValue)': that of a rate follows "
                    + "from `baseline`", at: ["standard_deviation"])
        }
        guard baseline.map({ (1e-6...0.999_999).contains($0) }) ?? true else {
            throw CoreError(
                .unprocessable, "`baseline` must be a rate between 0 and 1; got \(baseline ?? 0)", at: ["baseline"])
        }
    }

    /// Returns the number of days from now for which the detectable effect is requested; `nil` if none is requested.
    ///
    /// - Throws: 422 for a time in the past, or more than ten years from now.
    func days(from now: Instant) throws(CoreError) -> Double? {
        guard let until else { return days }
        let days = (until - now).inDays
        guard (0...ResultsPower.dayLimit).contains(days) else {
            throw CoreError(
                .unprocessable, "`until` must be within ten years from now, \(now.rfc3339); got \(until.rfc3339)",
                at: ["until"])
        }
        return days
    }
}

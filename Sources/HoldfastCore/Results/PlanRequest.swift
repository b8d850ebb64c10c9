public import Bucketing
public import JSON
import Statistics
public import Storage

/// The question how many users and days an experiment needs, and which effect it can show until a time.
public struct PlanRequest: Sendable {
    public enum Kind: String, Sendable, CaseIterable {
        /// Whether a user reaches the goal.
        case conversion
        /// The sum of the values of a user's events.
        case total
    }

    public var goal: Identifier
    public var kind = Kind.conversion
    /// As a share of the baseline's mean; less than 0 if a decrease is of interest.
    public var minimumEffect: Double?
    /// By how much a guardrail may become worse; `nil` unless it is one.
    public var margin: Double?
    public var alpha: Double?
    public var power: Double?
    /// The mean of the baseline, and the standard deviation of totals; `nil` for observed ones.
    var baseline: Double?
    var standardDeviation: Double?
    /// Users of all variations; `nil` for the observed enrollment.
    var usersPerDay: Double?
    /// How many days from now the detectable effect is asked for.
    private var days: Double?
    private var until: Timestamp?
    /// The experiment from whose users traffic and baseline are taken; `nil` for this one, or others of its flags.
    public var source: Identifier?

    public static let alphas = 0.0001...0.5
    public static let powers = 0.5...0.9999

    private static let members = [
        "goal", "kind", "minimum_effect", "margin", "alpha", "power", "baseline", "standard_deviation",
        "users_per_day", "days", "until", "from",
    ]

    /// - Throws: 400 if the value is not an object; 422 with every wrong member.
    public init(_ value: JSONValue) throws(CoreError) {
        var faults = FaultCollector()
        let object = try value.object("a plan", knowing: Self.members)
        let goal = faults.collect(try object.text("goal"))
        self.goal = Identifier(goal ?? "")
        if let text = faults.collect(try object.optionalText("kind")) {
            if let known = Kind(rawValue: text) {
                kind = known
            } else {
                faults.add("`kind` must be 'conversion' or 'total'; got '\(text)'", at: ["kind"])
            }
        }
        minimumEffect = faults.number(object, "minimum_effect", -1...10, "0.05 for 5% more, or -0.05 for 5% less")
        if minimumEffect.map({ abs($0) < 0.0001 }) ?? false {
            faults.add("`minimum_effect` must be at least 0.0001 in magnitude", at: ["minimum_effect"])
        }
        margin = faults.number(object, "margin", 0.0001...1, "0.02 for 2% of the baseline")
        if margin != nil, minimumEffect != nil {
            faults.add("`margin` and `minimum_effect` must not be given together", at: ["margin"])
        }
        alpha = faults.number(object, "alpha", Self.alphas, "0.05")
        power = faults.number(object, "power", Self.powers, "0.8")
        let isRate = kind == .conversion
        baseline = faults.number(
            object, "baseline", isRate ? 1e-6...0.999_999 : -1e15...1e15, isRate ? "0.1 for 10% of users" : "49.9")
        standardDeviation = faults.number(object, "standard_deviation", 1e-15...1e15, "20")
        if isRate, standardDeviation != nil {
            faults.add(
                "`standard_deviation` must be given for the kind 'total' only; that of a rate follows from `baseline`",
                at: ["standard_deviation"])
        } else if !isRate, (baseline == nil) != (standardDeviation == nil) || baseline == 0 {
            faults.add(
                "`baseline`, which is not 0, and `standard_deviation` must be given together for the kind 'total'",
                at: ["baseline"])
        }
        usersPerDay = faults.number(object, "users_per_day", 0.001...1e12, "1000")
        days = faults.number(object, "days", 0...ResultsPower.dayLimit, "14")
        until = faults.collect(try object.optionalTime("until"))
        if days != nil, until != nil { faults.add("`days` and `until` must not be given together", at: ["until"]) }
        source = faults.collect(try object.optionalText("from")).map { Identifier($0) }
        if let error = CoreError(faults: faults.faults, "nothing was computed") { throw error }
    }

    /// The days from now for which the detectable effect is asked for; `nil` if it is not.
    ///
    /// - Throws: 422 for a time that is over, or later than ten years from now.
    func days(from now: Timestamp) throws(CoreError) -> Double? {
        guard let until else { return days }
        let days = Double(until - now) / 86_400_000
        guard (0...ResultsPower.dayLimit).contains(days) else {
            throw CoreError(
                .unprocessable, "`until` must be within ten years from now, \(now.rfc3339); got \(until.rfc3339)",
                at: ["until"])
        }
        return days
    }
}

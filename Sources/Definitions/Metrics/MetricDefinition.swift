public import Bucketing
public import JSON

/// A metric: the rule by which the goal events of a user after the first exposure to an experiment become a number.
public struct MetricDefinition: KeyedDefinition {
    public enum Kind: String, Sendable, CaseIterable {
        /// The share of users who reached a goal.
        case conversion
        /// Events of a goal per user.
        case count
        /// The sum of the values of a goal per user.
        case total
        /// The mean value of the events of a goal.
        case mean
        /// The sum of one term over all users, divided by that of another.
        case ratio
        /// The share of users who reached a goal within some days after the first exposure.
        case retention
        /// The share of users who reached goals one after the other.
        case funnel
    }

    /// The change of a metric that is an improvement.
    public enum Direction: String, Sendable, CaseIterable {
        case increase, decrease
    }

    /// The numerator or the denominator of a ratio: the sum of the values of a goal's events, or their number.
    public struct Term: Sendable, Equatable {
        public enum Measure: String, Sendable, CaseIterable {
            case value, count
        }

        public var goal: Identifier = ""
        public var measure = Measure.value
    }

    /// The covariate by which the number of each user is adjusted (CUPED), so that fewer users are needed.
    public enum Adjustment: Sendable, Equatable {
        case none
        /// The same metric of the user over this number of days before the first exposure, 1 to 60.
        case days(Int)
        /// The value that an attribute had at the first exposure.
        case attribute(Identifier)
    }

    public let key: Identifier
    public internal(set) var kind: Kind
    /// The goal whose events count; unused by ratios and funnels.
    public var goal: Identifier = ""
    /// The maximum that counts: of one user's events or total, or for a mean, of one event's value. `nil` for no
    /// maximum.
    public var cap: Double?
    public internal(set) var numerator = Term()
    public internal(set) var denominator = Term()
    /// For retention, events count from `from` days up to, but not including, `to` days after the first exposure.
    public internal(set) var from = 0.0
    /// See ``from``.
    public internal(set) var to = 0.0
    /// The goals of a funnel, in order.
    public internal(set) var steps: [Identifier] = []
    /// The number of days after the first exposure in which events count; `nil` for no limit.
    public var window: Double?
    /// The adjustment in the verdict, the guardrails and the plan. It stays once an experiment that measures the metric
    /// has started, so that nobody chooses it by the results.
    public var adjustment: Adjustment
    public internal(set) var direction = Direction.increase
    /// The smallest effect of interest, as a share of the baseline's mean: 0.0001 to 10. `nil` if none was given.
    public internal(set) var minimumEffect: Double?
    /// The unit of the numbers, which is only displayed: a currency code of ISO 4217, or any short text. Empty for
    /// shares of users.
    public internal(set) var unit = ""
    public internal(set) var description = ""

    /// Creates a metric with the defaults of its kind.
    public init(key: Identifier, _ kind: Kind) {
        self.key = key
        self.kind = kind
        adjustment = kind.standardAdjustment
    }

    public var listKey: Identifier { key }

    /// Whether the verdict, the guardrails and the plan use adjusted numbers (CUPED).
    public var isAdjusted: Bool { adjustment != .none }

    /// The maximum number of metrics of a project.
    public static let limit = 500
    /// The values that ``minimumEffect`` may have.
    public static let minimumEffects = 0.0001...10.0
    /// The values that ``from``, ``to`` and ``window`` may have, in days.
    static let days = 0.0...3_650.0
    /// The number of goals that a funnel may have.
    static let funnelGoals = 2...10
    /// The values that ``cap`` may have, except 0.
    static let caps = 0.0...1e15
    /// The values that ``Adjustment/days(_:)`` may have.
    static let adjustmentDays = 1...60
    /// The days of the default adjustment.
    static let standardDays = 14

    /// The goals whose events are measured. The steps of a funnel are in order; a ratio has the numerator's goal first.
    public var goals: [Identifier] {
        switch kind {
        case .conversion, .count, .total, .mean, .retention: [goal]
        case .ratio: [numerator.goal, denominator.goal]
        case .funnel: steps
        }
    }

    /// Whether another metric computes the same numbers from events, so that it differs at most in how they are judged
    /// and displayed.
    public func measures(likeThat other: MetricDefinition) -> Bool {
        var comparable = other
        comparable.direction = direction
        comparable.minimumEffect = minimumEffect
        comparable.description = description
        comparable.adjustment = adjustment
        comparable.unit = unit
        return self == comparable
    }

    /// The JSON that is stored, and that `GET` shows.
    public var json: JSONObject {
        var object = JSONObject()
        object["key"] = JSONValue(key)
        table.show(self, in: &object)
        return object
    }

    /// The JSON in a file of definitions.
    public var definition: JSONObject {
        var object = JSONObject()
        object["key"] = JSONValue(key)
        table.writeFile(self, to: &object)
        return object
    }

    // MARK: Reading

    /// Reads a stored metric.
    ///
    /// - Returns: `nil` if the metric is not valid here, such as one of a kind that only a newer release knows.
    public init?(stored object: JSONObject, key: Identifier) {
        var faults = FaultCollector()
        guard let kind = Self.kind(object, nil, &faults) else { return nil }
        self.init(key: key, kind)
        read(object, keeping: [], &faults)
        guard faults.faults.isEmpty else { return nil }
    }

    /// Reads the body of a `PUT`. Absent members keep their values. If the kind changes, members that the new kind does
    /// not have are dropped.
    ///
    /// - Returns: `nil` if the kind is missing or unknown. The returned metric is valid only if there are no faults.
    public init?(_ body: JSONObject, key: Identifier, replacing former: Self?, _ faults: inout FaultCollector) {
        guard let kind = Self.kind(body, former, &faults) else { return nil }
        self.init(key: key, kind)
        table.checkNames(of: body, &faults)
        var kept = Set(former.map { Self.names(of: $0.kind) } ?? [])
        // Another kind may have another standard adjustment.
        if kind != former?.kind { kept.remove("adjustment") }
        if let former { table.apply(Given(draft: former, names: kept.subtracting(["kind"])), to: &self) }
        read(body, keeping: kept, &faults)
    }

    /// Returns the kind in the JSON, or else that of the former metric. Adds a fault if there is neither.
    private static func kind(_ object: JSONObject, _ former: Self?, _ faults: inout FaultCollector) -> Kind? {
        if object["kind"] == nil, let former { return former.kind }
        return faults.choice(Kind.self, object, "kind", isRequired: true)
    }

    /// Reads the members of the metric's kind.
    ///
    /// - Parameter kept: the names of members that may be absent, because the metric has a value already.
    private mutating func read(_ object: JSONObject, keeping kept: Set<String>, _ faults: inout FaultCollector) {
        let given = table.read(object, at: [], keeping: kept, &faults)
        table.apply(given, to: &self)
        let daysAreValid = !faults.faults.contains { [["from"], ["to"]].contains($0.pointer) }
        if kind == .retention, daysAreValid, from >= to {
            faults.add("`from` must be less than `to`, \(to.shortest); got \(from.shortest)", at: ["from"])
        }
    }
}

extension MetricDefinition {
    /// The statistic by which a metric is compared.
    public enum Statistic: Sendable {
        /// The share of users.
        case rate
        /// The mean over users.
        case mean
        /// The ratio of two sums.
        case ratio
    }

    public var statistic: Statistic {
        switch kind {
        case .conversion, .retention, .funnel: .rate
        case .count, .total: .mean
        case .mean, .ratio: .ratio
        }
    }
}

extension Double {
    /// The shortest decimal text that reads back as the same number.
    public var shortest: String { String(decoding: JSONValue.shortest(self).encoded(), as: UTF8.self) }
}

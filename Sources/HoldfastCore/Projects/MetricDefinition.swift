public import Bucketing
public import Definitions
public import JSON

/// What a project measures: how the goal events of a user since the first exposure to an experiment become a number.
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

    /// Which change is an improvement.
    public enum Direction: String, Sendable, CaseIterable {
        case increase, decrease
    }

    /// A term of a ratio: events of a goal, added up.
    public struct Term: Sendable, Equatable {
        public enum Measure: String, Sendable, CaseIterable {
            case value, count
        }

        public var goal: Identifier
        public var measure: Measure
    }

    /// What is measured.
    public enum Content: Sendable, Equatable {
        case conversion(goal: Identifier)
        /// - Parameter cap: the maximum of one user's events.
        case count(goal: Identifier, cap: Double? = nil)
        /// - Parameter cap: the maximum of one user's total.
        case total(goal: Identifier, cap: Double? = nil)
        /// - Parameter cap: the maximum value of one event.
        case mean(goal: Identifier, cap: Double? = nil)
        case ratio(numerator: Term, denominator: Term)
        /// From and to are days after the first exposure; the latter is excluded.
        case retention(goal: Identifier, from: Double, to: Double)
        case funnel(goals: [Identifier])
    }

    /// By what a user's number is adjusted (CUPED), so that fewer users are needed.
    public enum Adjustment: Sendable, Equatable {
        case none
        /// The same number over these days before the first exposure.
        case days(Int)
        /// The value that an attribute had at the first exposure.
        case attribute(Identifier)
    }

    public let key: Identifier
    public var content: Content
    /// The days after the first exposure in which events count; `nil` for ever.
    public var window: Double?
    public var direction = Direction.increase
    /// The smallest effect of interest, as a share of the baseline's mean.
    public var minimumEffect: Double?
    public var description = ""
    /// How the verdict, guardrails and the plan adjust the metric, whatever is observed.
    public var adjustment = Adjustment.none

    public var listKey: Identifier { key }

    /// Whether the verdict, guardrails and the plan use the numbers that are adjusted by what is known from before (CUPED).
    public var isAdjusted: Bool { adjustment != .none }

    /// How many metrics a project may have.
    public static let limit = 500
    static let days = 0.0...3_650.0
    static let minimumEffects = 0.0001...10.0
    static let funnelGoals = 2...10
    static let descriptionLimit = 4_096
    static let caps = 0.0...1e15
    static let adjustmentDays = 1...60
    static let standardDays = 14

    public var kind: Kind {
        switch content {
        case .conversion: .conversion
        case .count: .count
        case .total: .total
        case .mean: .mean
        case .ratio: .ratio
        case .retention: .retention
        case .funnel: .funnel
        }
    }

    /// The goals whose events are measured; of a funnel in order.
    public var goals: [Identifier] {
        switch content {
        case .conversion(let goal), .count(let goal, _), .total(let goal, _), .mean(let goal, _),
            .retention(let goal, _, _):
            [goal]
        case .ratio(let numerator, let denominator): [numerator.goal, denominator.goal]
        case .funnel(let goals): goals
        }
    }

    /// The maximum of one user's events or total, or of one event's value.
    public var cap: Double? {
        get {
            switch content {
            case .count(_, let cap), .total(_, let cap), .mean(_, let cap): cap
            case .conversion, .ratio, .retention, .funnel: nil
            }
        }
        set {
            switch content {
            case .count(let goal, _): content = .count(goal: goal, cap: newValue)
            case .total(let goal, _): content = .total(goal: goal, cap: newValue)
            case .mean(let goal, _): content = .mean(goal: goal, cap: newValue)
            case .conversion, .ratio, .retention, .funnel: break
            }
        }
    }

    /// Reads a stored metric.
    ///
    /// - Returns: `nil` for one of a newer release, which is ignored.
    init?(stored object: JSONObject, key: Identifier) {
        var faults = FaultCollector()
        self.init(object, key: key, &faults)
        guard faults.faults.isEmpty else { return nil }
    }

    /// What is stored, and what `GET` presents.
    public var json: JSONObject {
        var object = JSONObject()
        object["key"] = JSONValue(key)
        object["kind"] = .string(kind.rawValue)
        switch content {
        case .conversion(let goal): object["goal"] = JSONValue(goal)
        case .count(let goal, let cap), .total(let goal, let cap), .mean(let goal, let cap):
            object["goal"] = JSONValue(goal)
            object["cap"] = cap.map { .shortest($0) } ?? .null
        case .ratio(let numerator, let denominator):
            object["numerator"] = numerator.json
            object["denominator"] = denominator.json
        case .retention(let goal, let from, let to):
            object["goal"] = JSONValue(goal)
            (object["from"], object["to"]) = (.shortest(from), .shortest(to))
        case .funnel(let goals): object["goals"] = JSONValue(goals)
        }
        if kind != .retention { object["window"] = window.map { .shortest($0) } ?? .null }
        if kind.members.contains("adjustment") { object["adjustment"] = adjustment.json }
        object["direction"] = .string(direction.rawValue)
        object["minimum_effect"] = minimumEffect.map { .shortest($0) } ?? .null
        object["description"] = .string(description)
        return object
    }
}

extension MetricDefinition.Adjustment {
    public var json: JSONValue {
        switch self {
        case .none: "none"
        case .days(let days): ["days": .integer(Int64(days))]
        case .attribute(let name): ["attribute": JSONValue(name)]
        }
    }
}

extension MetricDefinition.Term {
    var json: JSONValue { ["goal": JSONValue(goal), "by": .string(measure.rawValue)] }
}

// MARK: Reading

extension MetricDefinition.Kind {
    /// The members that describe what is measured.
    var members: [String] {
        switch self {
        case .conversion: ["goal", "window", "adjustment"]
        case .count, .total: ["goal", "cap", "window", "adjustment"]
        case .mean: ["goal", "cap", "window"]
        case .ratio: ["numerator", "denominator", "window"]
        case .retention: ["goal", "from", "to", "adjustment"]
        case .funnel: ["goals", "window"]
        }
    }

    /// The adjustment of a metric that does not name one. Rates are not adjusted unless somebody asks: with an uneven split
    /// the likelihood ratio finds more.
    public var standardAdjustment: MetricDefinition.Adjustment {
        switch self {
        case .count, .total: .days(MetricDefinition.standardDays)
        case .conversion, .mean, .ratio, .retention, .funnel: .none
        }
    }
}

extension MetricDefinition {
    /// The members of every kind.
    static let commonMembers = ["key", "kind", "direction", "minimum_effect", "description"]

    /// - Parameter object: a whole definition.
    /// - Returns: `nil` if something is wrong, and `faults` say what.
    init?(_ object: JSONObject, key: Identifier, _ faults: inout FaultCollector) {
        guard let kind = faults.choice(Kind.self, object, "kind", isRequired: true) else { return nil }
        self.key = key
        let content = Self.content(kind, object, &faults)
        if kind != .retention { window = faults.positive(object, "window", upTo: Self.days.upperBound) }
        direction = faults.choice(Direction.self, object, "direction") ?? .increase
        if let number = faults.number(object, "minimum_effect") {
            minimumEffect = number
            if !Self.minimumEffects.contains(number) {
                faults.add(
                    "`minimum_effect` must be a number from 0.0001 to 10, such as 0.05 for 5% of the baseline; got \(number)",
                    at: ["minimum_effect"])
            }
        }
        if kind.members.contains("adjustment") {
            adjustment = faults.adjustment(object) ?? kind.standardAdjustment
        }
        description = faults.text(object, "description", atMost: Self.descriptionLimit) ?? ""
        guard let content else { return nil }
        self.content = content
    }

    private static func content(_ kind: Kind, _ object: JSONObject, _ faults: inout FaultCollector) -> Content? {
        func goal() -> Identifier? { faults.goal(object["goal"], "goal", at: ["goal"]) }
        switch kind {
        case .conversion: return goal().map { .conversion(goal: $0) }
        case .count, .total, .mean:
            let cap = faults.positive(object, "cap", upTo: Self.caps.upperBound)
            return goal().map { goal in
                switch kind {
                case .count: .count(goal: goal, cap: cap)
                case .mean: .mean(goal: goal, cap: cap)
                default: .total(goal: goal, cap: cap)
                }
            }
        case .ratio:
            let (numerator, denominator) = (faults.term(object, "numerator"), faults.term(object, "denominator"))
            guard let numerator, let denominator else { return nil }
            return .ratio(numerator: numerator, denominator: denominator)
        case .retention:
            let (from, to) = (faults.day(object, "from"), faults.day(object, "to"))
            if let from, let to, from >= to {
                faults.add("`from` must be less than `to`, \(to.shortest); got \(from.shortest)", at: ["from"])
            }
            guard let goal = goal(), let from, let to else { return nil }
            return .retention(goal: goal, from: from, to: to)
        case .funnel: return faults.funnel(object).map { .funnel(goals: $0) }
        }
    }
}

extension Double {
    /// As people write it, without superfluous digits.
    var shortest: String { String(decoding: JSONValue.shortest(self).encoded(), as: UTF8.self) }
}

extension FaultCollector {
    /// Returns a member that is the name of a case; `nil` if it is absent or wrong.
    fileprivate mutating func choice<Choice: RawRepresentable & CaseIterable>(
        _: Choice.Type, _ object: JSONObject, _ name: String, isRequired: Bool = false, at place: JSONPointer = []
    ) -> Choice? where Choice.RawValue == String {
        let names = Choice.allCases.map(\.rawValue)
        let place = place.appending(name)
        guard let value = object[name], !value.isNull else {
            if isRequired { add("`\(name)` is required: one of \(names.joined(separator: ", "))", at: place) }
            return nil
        }
        let text = value.string
        if let choice = text.flatMap({ Choice(rawValue: $0) }) { return choice }
        let hint = text.map { Spelling.hint(for: $0, among: names) } ?? ""
        let found = text.map { "'\($0)'" } ?? value.kind
        add("`\(name)` must be one of \(names.joined(separator: ", ")); got \(found)\(hint)", at: place)
        return nil
    }

    fileprivate mutating func number(_ object: JSONObject, _ name: String) -> Double? {
        guard let value = object[name], !value.isNull else { return nil }
        guard let number = value.double else {
            add("`\(name)` must be a number; got \(value.kind)", at: JSONPointer().appending(name))
            return nil
        }
        return number
    }

    /// Returns a member that is a number greater than 0, or null.
    fileprivate mutating func positive(_ object: JSONObject, _ name: String, upTo limit: Double) -> Double? {
        guard let number = number(object, name) else { return nil }
        guard number > 0, number <= limit else {
            add(
                "`\(name)` must be greater than 0 and at most \(limit.shortest), or null; got \(number.shortest)",
                at: JSONPointer().appending(name))
            return nil
        }
        return number
    }

    /// Returns how a metric is adjusted: `"none"`, `{"days":14}` or `{"attribute":"orders"}`; `nil` if it is absent or wrong.
    fileprivate mutating func adjustment(_ object: JSONObject) -> MetricDefinition.Adjustment? {
        let place: JSONPointer = ["adjustment"]
        let rule =
            "`adjustment` must be \"none\", an object such as {\"days\":14} or one such as {\"attribute\":\"orders\"}"
        guard let value = object["adjustment"], !value.isNull else { return nil }
        if value.string == "none" { return MetricDefinition.Adjustment.none }
        guard let chosen = value.object else {
            add("\(rule); got \(value.string.map { "'\($0)'" } ?? value.kind)", at: place)
            return nil
        }
        guard self.object(value, "an adjustment", knowing: ["days", "attribute"], at: place) != nil else { return nil }
        switch (chosen["days"], chosen["attribute"]) {
        case (let days?, nil):
            let range = MetricDefinition.adjustmentDays
            guard let number = days.double.flatMap({ Int(exactly: $0) }), range.contains(number) else {
                let found = days.double.map(\.shortest) ?? days.kind
                add(
                    "`days` must be a whole number from \(range.lowerBound) to \(range.upperBound); got \(found)",
                    at: place.appending("days"))
                return nil
            }
            return .days(number)
        case (nil, let attribute?):
            guard let name = attribute.string, !name.isEmpty, name.utf8.count <= 255 else {
                let found = attribute.string.map { "\($0.utf8.count) bytes" } ?? attribute.kind
                add(
                    "`attribute` must be the name of an attribute, 1 to 255 bytes; got \(found)",
                    at: place.appending("attribute"))
                return nil
            }
            return .attribute(Identifier(name))
        default:
            add("\(rule); got \(chosen.count) members", at: place)
            return nil
        }
    }

    /// Returns a required number of days.
    fileprivate mutating func day(_ object: JSONObject, _ name: String) -> Double? {
        let range = MetricDefinition.days
        guard object[name]?.isNull == false else {
            add("`\(name)` is required: days after the first exposure", at: JSONPointer().appending(name))
            return nil
        }
        return collect(try object.optionalNumber(name, range))
    }

    fileprivate mutating func goal(_ value: JSONValue?, _ name: String, at place: JSONPointer) -> Identifier? {
        guard let value, !value.isNull else {
            add("`\(name)` is required", at: place)
            return nil
        }
        guard let text = value.string else {
            add("`\(name)` must be a string; got \(value.kind)", at: place)
            return nil
        }
        guard EventInput.isGoal(text) else {
            add("`\(name)` \(EventInput.goalRule(text))", at: place)
            return nil
        }
        return Identifier(text)
    }

    /// Returns a term of a ratio: `{"goal":…,"by":"value"|"count"}`.
    fileprivate mutating func term(_ object: JSONObject, _ name: String) -> MetricDefinition.Term? {
        let place = JSONPointer().appending(name)
        guard let value = object[name], !value.isNull else {
            add("`\(name)` is required: an object such as {\"goal\":\"purchase\",\"by\":\"value\"}", at: place)
            return nil
        }
        guard let object = self.object(value, "a term", knowing: ["goal", "by"], at: place) else { return nil }
        let goal = goal(object["goal"], "goal", at: place.appending("goal"))
        let measure = choice(MetricDefinition.Term.Measure.self, object, "by", isRequired: true, at: place)
        guard let goal, let measure else { return nil }
        return MetricDefinition.Term(goal: goal, measure: measure)
    }

    fileprivate mutating func funnel(_ object: JSONObject) -> [Identifier]? {
        guard object["goals"]?.isNull == false else {
            add("`goals` is required: the goals in their order", at: ["goals"])
            return nil
        }
        guard let list = list(object, "goals", MetricDefinition.funnelGoals, at: []) else { return nil }
        var goals: [Identifier] = []
        for (value, place) in list {
            guard let goal = goal(value, "a goal", at: place) else { continue }
            if goals.contains(goal) { add("the goals must differ; got '\(goal)' twice", at: place) }
            goals.append(goal)
        }
        return goals
    }
}

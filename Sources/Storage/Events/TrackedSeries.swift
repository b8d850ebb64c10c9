public import Bucketing
package import JSON

/// What is computed of each user's goal events for a metric of an experiment, beside each goal's own totals.
///
/// A user's totals of a series are kept like those of a goal, under names that no goal can have; see ``SeriesName``.
public struct SeriesDefinition: Hashable, Sendable {
    public enum Measure: String, Sendable {
        case value, count
    }

    /// Events of a goal, added up.
    public struct Term: Hashable, Sendable {
        public var goal: Identifier
        public var measure: Measure
        /// The maximum value of one event.
        public var cap: Double?

        public init(_ goal: Identifier, _ measure: Measure, cap: Double? = nil) {
            self.goal = goal
            self.measure = measure
            self.cap = cap
        }
    }

    /// What of a user's time before the first exposure is kept beside a sum, to adjust it by (CUPED).
    public enum Covariate: Hashable, Sendable {
        /// The same sum over this time before the first exposure.
        case before(Timestamp)
        /// The value that this attribute had at the first exposure, if it was a number.
        case attribute(Identifier)

        public static let standard = Covariate.before(EventRules.lookBack)
    }

    public enum Content: Hashable, Sendable {
        /// The sum of a term since the first exposure, and before it, each at most the cap.
        case sum(Term, cap: Double?)
        /// Two sums since the first exposure: the first is kept as ``UserGoal/afterValue``, the second as
        /// ``UserGoal/beforeValue``.
        case ratio(Term, Term)
        /// The first time at which each goal was reached at or after the one before it. Each step has a name of its own.
        case funnel([Identifier])
        /// The value of this attribute at the first exposure; see ``BreakdownGroup``.
        case breakdown(Identifier)
        /// The ``AllocationPeriod`` under which the user is tallied, as a group whose index is the period's number. It tells
        /// with which probability the user got the variation.
        case periods
    }

    public var content: Content
    /// The time after the first exposure at which events begin to count.
    public var from: Timestamp
    /// The time after the first exposure from which events do not count any more; `nil` if they always do.
    public var to: Timestamp?
    /// Of a sum.
    public var covariate = Covariate.standard

    public init(
        _ content: Content, from: Timestamp = 0, to: Timestamp? = nil, covariate: Covariate = .standard
    ) {
        self.content = content
        self.from = from
        self.to = to
        self.covariate = covariate
    }

    /// How long before the first exposure events count.
    var lookBack: Timestamp {
        guard case .sum = content, case .before(let time) = covariate else { return 0 }
        return time
    }

    /// Whether events of a goal count.
    func concerns(_ goal: Identifier) -> Bool {
        switch content {
        case .sum(let term, _): term.goal == goal
        case .ratio(let first, let second): first.goal == goal || second.goal == goal
        case .funnel(let goals): goals.contains(goal)
        case .breakdown, .periods: false
        }
    }

    /// - Parameter offset: the time since the first exposure.
    func isInWindow(_ offset: Timestamp) -> Bool { offset >= from && to.map { offset < $0 } ?? true }
}

/// A series of an experiment, with a number that none had before.
public struct TrackedSeries: Sendable, Equatable {
    public enum State: Int64, Sendable {
        /// The totals of users who did something before the series was tracked are being computed from stored events.
        case filling
        case filled
        /// Nothing is computed any more, and the users' totals are being deleted.
        case dropped
    }

    public var number: Int64
    public var sdkKey: String
    public var experimentID: Identifier
    public var definition: SeriesDefinition
    public var state: State
    /// While it is being filled or deleted: the number of the last exposure whose user is done.
    public var doneTo: Int64
    /// The totals lack events that were received before this time, because they had been deleted; 0 if they lack none. Of a
    /// breakdown or of periods: users who were exposed before this time have no group.
    public var since: Timestamp
    /// Of a breakdown: the values that have a group of their own, in the order of their numbers.
    public var groupValues: [Identifier] = []

    public init(
        number: Int64, sdkKey: String, experimentID: Identifier, definition: SeriesDefinition,
        state: State = .filling, doneTo: Int64 = 0, since: Timestamp = 0
    ) {
        self.number = number
        self.sdkKey = sdkKey
        self.experimentID = experimentID
        self.definition = definition
        self.state = state
        self.doneTo = doneTo
        self.since = since
    }

    /// A name that no series has.
    public static let unknownName: Identifier = "\u{1}0"

    var isFunnel: Bool { if case .funnel = definition.content { true } else { false } }
    var isRatio: Bool { if case .ratio = definition.content { true } else { false } }
    /// The attribute of a breakdown; `nil` for any other series.
    public var breakdown: Identifier? {
        if case .breakdown(let attribute) = definition.content { attribute } else { nil }
    }
    /// The attribute by which a sum is adjusted; `nil` for any other series.
    var covariateAttribute: Identifier? {
        guard case .sum = definition.content, case .attribute(let attribute) = definition.covariate else { return nil }
        return attribute
    }

    /// Whether each user belongs to a ``BreakdownGroup`` of it.
    public var hasGroups: Bool { breakdown != nil || definition.content == .periods }

    /// The names of its totals: one, or of a funnel one for each step.
    public var names: [Identifier] {
        switch definition.content {
        case .sum(_, let cap):
            [SeriesName(number: number, cap: cap, hasAttribute: covariateAttribute != nil).identifier]
        case .ratio: [SeriesName(number: number).identifier]
        case .funnel(let goals): (1...goals.count).map { SeriesName(number: number, step: $0).identifier }
        case .breakdown, .periods: [SeriesName(number: number, isGroup: true).identifier]
        }
    }
}

/// The name under which totals of a series are kept in the place of a goal's: U+0001, with which no goal may begin, and
/// the number. It has what the contribution of a user to the sums of a variation depends on, so that a user can be removed
/// from them whatever has become of the series.
struct SeriesName {
    var number: Int64
    /// The maximum of a user's total.
    var cap: Double?
    /// The step of a funnel, from 1.
    var step: Int?
    /// Whether the total is a ``BreakdownGroup``.
    var isGroup = false
    /// Whether the value before the first exposure is that of an attribute, which has no cap.
    var hasAttribute = false

    static let mark: UInt8 = 1
    /// Follows the names of all series, and precedes all goals.
    static let end = "\u{2}"

    var identifier: Identifier {
        Identifier(
            "\u{1}\(number)\(hasAttribute ? "a" : "")\(cap.map { "c\($0)" } ?? "")\(step.map { ".\($0)" } ?? "")"
                + (isGroup ? "b" : ""))
    }

    init(number: Int64, cap: Double? = nil, step: Int? = nil, isGroup: Bool = false, hasAttribute: Bool = false) {
        self.number = number
        self.cap = cap
        self.step = step
        self.isGroup = isGroup
        self.hasAttribute = hasAttribute
    }

    /// - Returns: `nil` for the name of a goal.
    init?(_ goal: Identifier) {
        guard goal.string.utf8.first == Self.mark else { return nil }
        let text = goal.string.dropFirst()
        let digits = text.prefix { $0.isNumber }
        guard let number = Int64(digits) else { return nil }
        self.init(number: number)
        var rest = text[digits.endIndex...]
        if rest.first == "a" {
            hasAttribute = true
            rest = rest.dropFirst()
        }
        if rest.first == "c" { cap = Double(rest.dropFirst()) }
        if rest.first == "." { step = Int(rest.dropFirst()) }
        isGroup = rest == "b"
    }

    /// What the user contributes to the sums of a variation.
    func tally(of total: UserGoal) -> GoalTally {
        var total = total
        if let cap {
            total.afterValue = min(total.afterValue, cap)
            if !hasAttribute { total.beforeValue = min(total.beforeValue, cap) }
        }
        // Of a funnel's step, the value is a time.
        if step != nil { total.afterValue = 0 }
        // Only asked of goals.
        total.valuedCount = 0
        return total.tally
    }
}

extension UserGoal {
    /// The user's contribution to the sums of a variation.
    ///
    /// - Parameter goal: the name under which the total is kept.
    package func tally(of goal: Identifier) -> GoalTally {
        SeriesName(goal)?.tally(of: self) ?? tally
    }
}

// MARK: As JSON

extension SeriesDefinition {
    package var json: JSONValue {
        var object = JSONObject()
        switch content {
        case .sum(let term, let cap):
            object["sum"] = term.json
            object["cap"] = cap.map { .number($0) }
        case .ratio(let first, let second): object["ratio"] = [first.json, second.json]
        case .funnel(let goals): object["funnel"] = .array(goals.map { .string($0.string) })
        case .breakdown(let attribute): object["breakdown"] = .string(attribute.string)
        case .periods: object["periods"] = true
        }
        object["from"] = .integer(from)
        object["to"] = to.map { .integer($0) }
        switch covariate {
        case .standard: break
        case .before(let time): object["look_back"] = .integer(time)
        case .attribute(let attribute): object["attribute"] = .string(attribute.string)
        }
        return .object(object)
    }

    /// - Returns: `nil` for a definition of a newer release.
    package init?(_ json: JSONValue) {
        guard let object = json.object else { return nil }
        if let term = object["sum"].flatMap({ Term($0) }) {
            content = .sum(term, cap: object["cap"]?.double)
        } else if let terms = object["ratio"]?.array?.compactMap({ Term($0) }), terms.count == 2 {
            content = .ratio(terms[0], terms[1])
        } else if let goals = object["funnel"]?.array?.compactMap(\.string), !goals.isEmpty {
            content = .funnel(goals.map { Identifier($0) })
        } else if let attribute = object["breakdown"]?.string {
            content = .breakdown(Identifier(attribute))
        } else if object["periods"] == true {
            content = .periods
        } else {
            return nil
        }
        func time(_ name: String) -> Timestamp? { object[name]?.double.flatMap { Timestamp(exactly: $0) } }
        from = time("from") ?? 0
        to = time("to")
        if let attribute = object["attribute"]?.string {
            covariate = .attribute(Identifier(attribute))
        } else if let time = time("look_back") {
            covariate = .before(time)
        }
    }
}

extension SeriesDefinition.Term {
    fileprivate var json: JSONValue {
        var object = JSONObject()
        object["goal"] = .string(goal.string)
        object["by"] = .string(measure.rawValue)
        object["cap"] = cap.map { .number($0) }
        return .object(object)
    }

    fileprivate init?(_ json: JSONValue) {
        guard let goal = json.object?["goal"]?.string,
            let measure = json.object?["by"]?.string.flatMap({ SeriesDefinition.Measure(rawValue: $0) })
        else { return nil }
        self.init(Identifier(goal), measure, cap: json.object?["cap"]?.double)
    }
}

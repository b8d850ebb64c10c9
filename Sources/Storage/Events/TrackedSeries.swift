public import Bucketing
public import Chronology
package import JSON

/// A computation over each user's goal events for a metric of an experiment, in addition to the totals of each goal.
///
/// The totals of a series are stored like those of a goal, under names that no goal can have; see ``SeriesName``.
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

    /// The value before the first exposure that is stored with a sum, to adjust the sum by it (CUPED).
    public enum Covariate: Hashable, Sendable {
        /// The same sum over this time before the first exposure.
        case before(TimeSpan)
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
        /// For each goal the first time at which it was reached, not before the preceding goal. Each step has a name of
        /// its own.
        case funnel([Identifier])
        /// The value of this attribute at the first exposure; see ``BreakdownGroup``.
        case breakdown(Identifier)
        /// The ``AllocationPeriod`` under which the user is tallied, as a group whose index is the period's number. It
        /// determines the probability with which the user got the variation.
        case periods
    }

    public var content: Content
    /// The time after the first exposure from which events count.
    public var from: TimeSpan
    /// The time after the first exposure from which events no longer count; `nil` if there is no end.
    public var to: TimeSpan?
    /// The covariate of a sum; ignored for other series.
    public var covariate = Covariate.standard

    public init(
        _ content: Content, from: TimeSpan = .zero, to: TimeSpan? = nil, covariate: Covariate = .standard
    ) {
        self.content = content
        self.from = from
        self.to = to
        self.covariate = covariate
    }

    /// The time before the first exposure in which events count.
    var lookBack: TimeSpan {
        guard case .sum = content, case .before(let span) = covariate else { return .zero }
        return span
    }

    /// Whether the series uses events of a goal.
    func concerns(_ goal: Identifier) -> Bool {
        switch content {
        case .sum(let term, _): term.goal == goal
        case .ratio(let first, let second): first.goal == goal || second.goal == goal
        case .funnel(let goals): goals.contains(goal)
        case .breakdown, .periods: false
        }
    }

    /// - Parameter offset: the time since the first exposure.
    func isInWindow(_ offset: TimeSpan) -> Bool { offset >= from && to.map { offset < $0 } ?? true }
}

/// A series of an experiment, with a number that is never reused.
public struct TrackedSeries: Sendable, Equatable {
    public enum State: Int64, Sendable {
        /// The totals of users who did something before the series was tracked are being computed from stored events.
        case filling
        case filled
        /// The series is no longer computed, and the users' totals are being deleted.
        case dropped
    }

    public var number: Int64
    public var sdkKey: String
    public var experimentID: Identifier
    public var definition: SeriesDefinition
    public var state: State
    /// While the series is being filled or deleted: the number of the last exposure whose user has been processed.
    public var doneTo: Int64
    /// The totals lack events that were received before this time, because they had been deleted; ``Instant/epoch`` if they lack none.
    /// For a breakdown or for periods: users who were exposed before this time have no group.
    public var since: Instant
    /// The values of a breakdown that have a group of their own, in the order of the groups; empty for other series.
    public var groupValues: [Identifier] = []

    public init(
        number: Int64, sdkKey: String, experimentID: Identifier, definition: SeriesDefinition,
        state: State = .filling, doneTo: Int64 = 0, since: Instant = .epoch
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

    /// Whether the series assigns a ``BreakdownGroup`` to each user.
    public var hasGroups: Bool { breakdown != nil || definition.content == .periods }

    /// The names of the totals: one, or for a funnel one for each step.
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

/// The name under which totals of a series are stored in place of a goal: U+0001, with which no goal may begin, the
/// number, and everything that a user's contribution to the sums of a variation depends on. A user can therefore be
/// removed from the sums even if the series has been dropped.
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
    /// The exclusive end of the names of all series, in the order of names.
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

    /// Returns the user's contribution to the sums of a variation.
    func tally(of total: UserGoal) -> GoalTally {
        var total = total
        if let cap {
            total.afterValue = min(total.afterValue, cap)
            if !hasAttribute { total.beforeValue = min(total.beforeValue, cap) }
        }
        // The value of a funnel's step is a time, which is not summed.
        if step != nil { total.afterValue = 0 }
        // Only used for goals.
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
        object["from"] = .integer(from.milliseconds)
        object["to"] = to.map { .integer($0.milliseconds) }
        switch covariate {
        case .standard: break
        case .before(let span): object["look_back"] = .integer(span.milliseconds)
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
        func span(_ name: String) -> TimeSpan? {
            object[name]?.double.flatMap { Int64(exactly: $0) }.map { .milliseconds($0) }
        }
        from = span("from") ?? .zero
        to = span("to")
        if let attribute = object["attribute"]?.string {
            covariate = .attribute(Identifier(attribute))
        } else if let span = span("look_back") {
            covariate = .before(span)
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

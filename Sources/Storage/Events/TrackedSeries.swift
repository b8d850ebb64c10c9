public import Bucketing
public import Chronology

/// A ``SeriesDefinition`` that an experiment uses, with a number that is never reused.
///
/// A new series is being filled: ``SeriesFiller`` computes the totals of users from the events that are already stored,
/// while the totals of new events are added (``SeriesRules``). Once no metric needs the series, it is dropped, and the
/// filler deletes its totals.
public struct TrackedSeries: Sendable, Equatable {
    /// Databases store the raw value.
    public enum State: Int64, Sendable {
        /// The totals of users who did something before the series was tracked are being computed from stored events.
        case filling
        /// All users with events have totals.
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
    /// The totals lack events that were received before this time, because they had been deleted; ``Instant/epoch`` if
    /// they lack none. For a breakdown or for periods: users who were exposed before this time have no group.
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

    /// A series name that no series has.
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
        case .funnel(let goals): goals.indices.map { SeriesName(number: number, step: $0 + 1).identifier }
        case .breakdown, .periods: [SeriesName(number: number, isGroup: true).identifier]
        }
    }
}

/// The name under which totals of a series are stored in place of a goal: U+0001, with which no goal may begin, the
/// number, and everything that a user's contribution to the sums of a variation depends on. A user can therefore be
/// removed from the sums even if the series has been dropped.
struct SeriesName {
    var number: Int64
    /// The maximum of a user's total; `nil` if there is none.
    var cap: Double?
    /// The step of a funnel, from 1; `nil` for other series.
    var step: Int?
    /// Whether the total is a ``BreakdownGroup``.
    var isGroup = false
    /// Whether the value before the first exposure is that of an attribute, which has no cap.
    var hasAttribute = false

    /// The first byte of the names of all series.
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

    /// Returns the user's contribution to the sums of a variation, given the user's total under this name.
    func tally(of total: UserGoal) -> GoalTally {
        var total = total
        if let cap {
            total.afterValue = min(total.afterValue, cap)
            if !hasAttribute { total.beforeValue = min(total.beforeValue, cap) }
        }
        // The value of a funnel's step is a time, which is not summed.
        if step != nil { total.afterValue = 0 }
        // Only goals have this count.
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

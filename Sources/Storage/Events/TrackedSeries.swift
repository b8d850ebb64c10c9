public import Bucketing
public import Chronology

/// A ``SeriesDefinition`` that an experiment uses, with a number from 1 on that is never reused.
///
/// A new series is being filled: ``SeriesFiller`` computes users' totals from the stored events, while new events are
/// added to the totals as they arrive (``SeriesRules``). Once no metric needs the series, it is dropped, and the filler
/// deletes its totals.
public struct TrackedSeries: Sendable, Equatable {
    /// Databases store the raw value.
    public enum State: Int64, Sendable {
        /// The totals of users with events from before the series was tracked are being computed.
        case filling
        /// All users with events that count have totals.
        case filled
        /// The series is no longer computed, and the users' totals are being deleted.
        case dropped
    }

    public var number: Int64
    public var sdkKey: String
    public var experimentID: Identifier
    public var definition: SeriesDefinition
    public var state: State
    /// The number of the last exposure whose user has been processed, while the series is being filled or deleted.
    public var doneTo: Int64
    /// The totals lack events that were received before this time, because the events had been deleted;
    /// ``Instant/epoch`` if no events are missing. For a breakdown or for periods: users who were exposed before this
    /// time have no group.
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

    /// A series name that no series has, because numbers begin with 1. Results read the tally of this name for a series
    /// that is not tracked yet: the tally has the numbers of users, but no totals.
    public static let unknownName: Identifier = "\u{1}0"

    var isFunnel: Bool { if case .funnel = definition.content { true } else { false } }
    var isRatio: Bool { if case .ratio = definition.content { true } else { false } }
    /// The attribute of a breakdown; `nil` for any other series.
    public var breakdown: Identifier? {
        if case .breakdown(let attribute) = definition.content { attribute } else { nil }
    }
    /// The attribute that is the covariate of a sum; `nil` for any other series.
    var covariateAttribute: Identifier? {
        guard case .sum = definition.content, case .attribute(let attribute) = definition.covariate else { return nil }
        return attribute
    }

    /// Whether the series assigns a ``BreakdownGroup`` to each user.
    public var hasGroups: Bool { breakdown != nil || definition.content == .periods }

    /// The names under which the totals are stored: one, or for a funnel one for each step.
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

/// The name under which the totals of a series are stored, in place of the name of a goal. It consists of U+0001, with
/// which no goal may begin, the number of the series, and the properties on which a user's contribution to the sums of
/// a variation depends. A user can therefore be removed from the sums even if the definition of the series is gone.
///
/// Examples: `\u{1}7` has no properties, `\u{1}7c99.5` has a cap, `\u{1}7ac99.5` an attribute and a cap, `\u{1}7.2` is
/// the second step of a funnel, and `\u{1}7b` is a breakdown.
struct SeriesName {
    var number: Int64
    /// The maximum of a user's total; `nil` if there is none.
    var cap: Double?
    /// The step of a funnel, from 1; `nil` for other series.
    var step: Int?
    /// Whether the total is a ``BreakdownGroup``.
    var isGroup = false
    /// Whether the value before the first exposure is the value of an attribute. The cap does not apply to it.
    var hasAttribute = false

    /// The first byte of the names of all series.
    static let mark: UInt8 = 1
    /// The end of the range of all series names. In the order of names, every series comes before every goal.
    static let end = "\u{2}"

    /// The name as an identifier, which ``init(_:)`` parses.
    var identifier: Identifier {
        var name = "\u{1}\(number)"
        if hasAttribute { name += "a" }
        if let cap { name += "c\(cap)" }
        if let step { name += ".\(step)" }
        if isGroup { name += "b" }
        return Identifier(name)
    }

    init(number: Int64, cap: Double? = nil, step: Int? = nil, isGroup: Bool = false, hasAttribute: Bool = false) {
        self.number = number
        self.cap = cap
        self.step = step
        self.isGroup = isGroup
        self.hasAttribute = hasAttribute
    }

    /// Parses an ``identifier``.
    ///
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

    /// Returns a user's contribution to the sums of a variation.
    ///
    /// - Parameter total: the user's total under this name.
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

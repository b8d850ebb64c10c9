public import Bucketing
public import Chronology
public import JSON

/// The totals of an experiment for one goal, as they were at the experiment's conclusion. Later events and erasures
/// change the tallies but not the frozen totals. The totals are kept permanently, because they do not name users.
///
/// The transaction that concludes the experiment reads a ``TallySnapshot`` and stores it as ``FrozenRow``s: one row for
/// each goal, and one common row with the values that all goals share.
public struct FrozenResults: Sendable {
    /// See ``ResultsFreeze/frozenAt``.
    public var frozenAt: Instant
    /// The experiment as its datafile defined it at the conclusion.
    public var definition: JSONValue
    /// The tallies of the goal at the conclusion.
    public var tally: ExperimentTally
}

/// A request to freeze the totals that an experiment has at the commit.
public struct ResultsFreeze: Sendable {
    public var experimentID: Identifier
    /// The time of the conclusion. It identifies the frozen totals, because an experiment may be concluded several
    /// times.
    public var frozenAt: Instant
    /// The experiment as its datafile defines it, without anything about users.
    public var definition: JSONValue

    public init(experimentID: Identifier, frozenAt: Instant, definition: JSONValue) {
        self.experimentID = experimentID
        self.frozenAt = frozenAt
        self.definition = definition
    }
}

/// All tallies of an experiment, for all goals, from one snapshot.
package struct TallySnapshot: Sendable {
    /// The key of the sums of one goal.
    package struct GoalDay: Hashable, Sendable {
        var variationID: Identifier
        var day: Int64
    }

    package private(set) var periods: [AllocationPeriod] = []
    private var users: [Cohort: UserCounts] = [:]
    private var goals: [Identifier: [GoalDay: GoalTally]] = [:]

    package init() {}

    package mutating func add(_ period: AllocationPeriod) { periods.append(period) }

    /// Adds to the user counts of a cohort.
    package mutating func add(_ counts: UserCounts, _ cohort: Cohort) {
        users[cohort, default: UserCounts()] += counts
    }

    /// Adds to the sums of a goal, for the users of a variation who were enrolled on one day.
    package mutating func add(_ tally: GoalTally, _ variationID: Identifier, day: Int64, goal: Identifier) {
        let key = GoalDay(variationID: variationID, day: day)
        let former = goals[goal]?[key]
        goals[goal, default: [:]][key] = former.map { $0 + tally } ?? tally
    }

    /// Whether any user was exposed, including excluded users.
    var hasUsers: Bool {
        users.values.contains { $0.counted != 0 || $0.multipleVariations != 0 || $0.chosen != 0 }
    }

    /// Returns the rows to store: the common row, and one for each goal.
    func rows(_ freeze: ResultsFreeze) -> [FrozenRow] {
        func row(_ goal: Identifier, _ content: JSONValue) -> FrozenRow {
            FrozenRow(
                experimentID: freeze.experimentID, frozenAt: freeze.frozenAt, goal: goal,
                content: String(decoding: content.encoded(), as: UTF8.self))
        }
        let common: JSONValue = [
            "experiment": freeze.definition, "periods": .array(periods.map(\.json)), "users": encodedUsers,
        ]
        let goalRows = goals.map { goal, days -> FrozenRow in
            let elements = days.map { key, tally -> JSONValue in
                .array([JSONValue(key.variationID), .integer(key.day)] + tally.numbers)
            }
            return row(goal, .array(elements))
        }
        return [row(FrozenRow.common, common)] + goalRows
    }

    /// The user counts, which ``FrozenRow/users()`` decodes: an array for each cohort.
    private var encodedUsers: JSONValue {
        .array(
            users.map { cohort, counts in
                [
                    JSONValue(cohort.variationID), .integer(cohort.period), .integer(cohort.day),
                    JSONValue(counts.counted), JSONValue(counts.multipleVariations), JSONValue(counts.chosen),
                    JSONValue(counts.notRunning),
                ]
            })
    }
}

/// A row of the table `frozen_results`.
package struct FrozenRow: Sendable {
    package var experimentID: Identifier
    package var frozenAt: Instant
    /// A goal or the name of a series; ``common`` for the common row.
    package var goal: Identifier
    /// JSON: for a goal an array of tallies, for the common row an object with the experiment, its periods and its
    /// users.
    package var content: String

    /// The ``goal`` of the common row. No goal has an empty name.
    static let common: Identifier = ""

    package init(experimentID: Identifier, frozenAt: Instant, goal: Identifier, content: String) {
        self.experimentID = experimentID
        self.frozenAt = frozenAt
        self.goal = goal
        self.content = content
    }

    package var values: [SQLValue] { [.text(experimentID), .instant(frozenAt), .text(goal), .text(content)] }
}

extension FrozenResults {
    /// Decodes the results for a goal.
    ///
    /// - Parameter rows: the common row, and the row of the goal if any user reached the goal.
    /// - Returns: `nil` if the common row is missing, because nothing was frozen.
    /// - Throws: ``StorageError/damaged(reason:)`` if a row cannot be decoded.
    package init?(_ rows: [FrozenRow]) throws(StorageError) {
        guard let common = rows.first(where: { $0.goal == FrozenRow.common }) else { return nil }
        var goals: [(variationID: Identifier, day: Int64, tally: GoalTally)] = []
        for row in rows where row.goal != FrozenRow.common {
            goals += try row.tallies()
        }
        let users = try common.users()
        let object = common.json?.object
        let periods = object?["periods"]?.array?.compactMap(AllocationPeriod.init(json:))
        guard let definition = object?["experiment"], let periods else { throw common.damage }
        self.init(
            frozenAt: common.frozenAt, definition: definition,
            tally: ExperimentTally(periods: periods, users: users, goals: goals))
    }
}

extension FrozenRow {
    /// Decodes the user counts of the common row: a variation, a period, a day and four counts each.
    fileprivate func users() throws(StorageError) -> [(cohort: Cohort, counts: UserCounts)] {
        var users: [(cohort: Cohort, counts: UserCounts)] = []
        for element in try list(json?.object?["users"]?.array) {
            let numbers = element.dropFirst().compactMap(\.integer)
            // A period, a day and four counts. Rows of earlier releases lack the fourth count.
            guard let id = element.first?.string, (5...6).contains(numbers.count) else { throw damage }
            let cohort = Cohort(variationID: Identifier(id), period: numbers[0], day: numbers[1])
            let counts = UserCounts(
                counted: Int(clamping: numbers[2]), multipleVariations: Int(clamping: numbers[3]),
                chosen: Int(clamping: numbers[4]),
                // The fourth count, if the row has it.
                notRunning: numbers.count > 5 ? Int(clamping: numbers[5]) : 0)
            users.append((cohort, counts))
        }
        return users
    }

    /// Decodes the tallies of the row of a goal: a variation, a day and the numbers of a tally each.
    ///
    /// - Throws: ``StorageError/damaged(reason:)`` if the row cannot be decoded.
    package func tallies() throws(StorageError) -> [(variationID: Identifier, day: Int64, tally: GoalTally)] {
        var tallies: [(variationID: Identifier, day: Int64, tally: GoalTally)] = []
        for element in try list(json?.array) {
            // A variation, a day and 15 numbers. Rows of earlier releases lack the last number.
            guard (16...17).contains(element.count), let id = element[0].string, let day = element[1].integer,
                let tally = GoalTally(element[2...])
            else { throw damage }
            tallies.append((Identifier(id), day, tally))
        }
        return tallies
    }

    /// Returns the elements of an array of arrays.
    fileprivate func list(_ value: [JSONValue]?) throws(StorageError) -> [[JSONValue]] {
        guard let value else { throw damage }
        return value.map { $0.array ?? [] }
    }

    /// The parsed content. It contains the definition of the experiment, so it may be as deep as a datafile.
    fileprivate var json: JSONValue? { try? JSONParser(maximumDepth: 128).parse(content) }

    fileprivate var damage: StorageError {
        .damaged(reason: "the frozen results of the experiment '\(experimentID)' are damaged")
    }
}

extension AllocationPeriod {
    fileprivate var json: JSONValue {
        [
            "number": .integer(number), "sdk_key": .string(sdkKey), "since": .instant(since),
            "allocation": allocation.json,
        ]
    }

    fileprivate init?(json: JSONValue) {
        guard let object = json.object, let number = object["number"]?.integer, let since = object["since"]?.instant,
            let allocation = object["allocation"].flatMap({ try? TrafficAllocation(json: $0) })
        else { return nil }
        self.init(number: number, sdkKey: object["sdk_key"]?.string ?? "", since: since, allocation: allocation)
    }
}

extension GoalTally {
    /// 15 numbers: four counts, five sums and their rests, and ``valued``.
    fileprivate var numbers: [JSONValue] {
        [JSONValue(events), JSONValue(converted), JSONValue(convertedBefore), JSONValue(convertedBoth)]
            + [y, yy, x, xx, xy].flatMap { [.number($0.value), .number($0.rest)] } + [JSONValue(valued)]
    }

    /// Decodes ``numbers``. The last number may be missing, because earlier releases did not store it.
    ///
    /// - Returns: `nil` if other numbers are missing.
    fileprivate init?(_ numbers: ArraySlice<JSONValue>) {
        let counts = numbers.prefix(4).compactMap(\.integer).map { Int(clamping: $0) }
        let sums = numbers.dropFirst(4).prefix(10).compactMap(\.double)
        guard counts.count == 4, sums.count == 10 else { return nil }
        self.init()
        events = counts[0]
        converted = counts[1]
        convertedBefore = counts[2]
        convertedBoth = counts[3]
        func sum(_ index: Int) -> CompensatedSum { CompensatedSum(sums[index], rest: sums[index + 1]) }
        y = sum(0)
        yy = sum(2)
        x = sum(4)
        xx = sum(6)
        xy = sum(8)
        valued = numbers.dropFirst(14).first?.integer.map { Int(clamping: $0) } ?? 0
    }
}

extension JSONValue {
    fileprivate init(_ number: Int) { self = .integer(Int64(number)) }
    fileprivate init(_ identifier: Identifier) { self = .string(identifier.string) }
}

import Bucketing
import Storage

/// A row of the `tallies` table: a summand of the counts of an experiment.
///
/// A transaction inserts a row instead of updating a sum, so that transactions do not wait for each other. Readers add
/// up the rows of a key. A sweep *folds* the oldest rows of a key: it replaces them and the key's total by a new total.
/// The total is a row, too.
struct TallyRow {
    /// Rows with the same key are added up.
    struct Key: Hashable {
        var experimentID: Identifier
        var variationID: Identifier
        /// The number of the allocation period; 0 for a goal, which has no period.
        var period: Int64 = 0
        /// The UTC day, counted from 1970-01-01.
        var day: Int64 = 0
        /// `nil` for a count of users.
        var goal: Identifier?
    }

    var key: Key
    /// Five counts.
    ///
    /// - Of users: counted users, users exposed to several variations, users with a forced variation, users exposed
    ///   while the experiment was not running, and 0.
    /// - Of a goal: events, users who converted, users who converted before, users who did both, and events with a
    ///   value. Older rows lack the last count.
    var counts: [Int64]
    /// The sums of a goal: y, y², x, x², xy. Compensated, because plain doubles would lose digits.
    var sums: [CompensatedSum]

    init(_ key: Key, _ users: UserCounts) {
        self.key = key
        counts = [users.counted, users.multipleVariations, users.chosen, users.notRunning, 0].map { Int64($0) }
        sums = Array(repeating: .zero, count: 5)
    }

    init(_ key: Key, _ tally: GoalTally) {
        self.key = key
        counts = [tally.events, tally.converted, tally.convertedBefore, tally.convertedBoth, tally.valued].map {
            Int64($0)
        }
        sums = [tally.y, tally.yy, tally.x, tally.xx, tally.xy]
    }

    /// Decodes a row of the table.
    ///
    /// - Returns: `nil` for a row with an unexpected format.
    init?(_ row: ResultRow) {
        key = Key(
            experimentID: row.identifier(0), variationID: row.identifier(1), period: row.integer(2),
            day: row.integer(3), goal: row.optionalIdentifier(4))
        counts = row.integers(5)
        let numbers = row.doubles(6)
        // Five sums, each with its value and its rest.
        guard (4...5).contains(counts.count), numbers.count == 10 else { return nil }
        if counts.count == 4 { counts.append(0) }
        sums = (0..<5).map { CompensatedSum(numbers[2 * $0], rest: numbers[2 * $0 + 1]) }
    }

    /// Adds a row with the same key.
    mutating func add(_ other: TallyRow) {
        for index in counts.indices { counts[index] &+= other.counts[index] }
        for index in sums.indices { sums[index] = sums[index] + other.sums[index] }
    }

    /// Adds up the rows of each key.
    static func folded(_ rows: Rows) -> [TallyRow] {
        var folded: [Key: TallyRow] = [:]
        for row in rows.lazy.compactMap({ TallyRow($0) }) {
            folded[row.key, default: TallyRow(zero: row.key)].add(row)
        }
        return Array(folded.values)
    }

    private init(zero key: Key) {
        self.init(key, GoalTally())
    }
}

/// The `tallies` table.
enum TallyRows {
    private static let columns = "experiment_id, variation_id, period, day, goal, counts, sums"

    /// Deletes and returns the oldest rows after a number that were not folded yet, followed by the totals of their
    /// keys.
    ///
    /// Needs no lock, because a row can be deleted only once, even if several servers take rows at the same time.
    static let take = Statement(
        "take_tallies",
        """
        WITH taken AS (
            DELETE FROM tallies WHERE NOT is_total AND number = ANY (
                ARRAY(SELECT number FROM tallies WHERE NOT is_total AND number > $1 ORDER BY number LIMIT $2)
            )
            RETURNING \(columns), number
        ),
        totals AS (
            DELETE FROM tallies AS found
            USING (SELECT DISTINCT experiment_id, variation_id, period, day, goal FROM taken) AS taken
            WHERE found.is_total AND found.experiment_id = taken.experiment_id
                AND found.variation_id = taken.variation_id AND found.period = taken.period AND found.day = taken.day
                AND found.goal IS NOT DISTINCT FROM taken.goal
            RETURNING \(columns.split(separator: ", ").map { "found.\($0)" }.joined(separator: ", "))
        )
        SELECT \(columns), number FROM taken UNION ALL SELECT \(columns), NULL FROM totals
        """)
    /// Inserts rows. The last parameter is the fifth count, which was added later.
    private static let insertAll = Statement(
        "insert_tallies",
        """
        INSERT INTO tallies (\(columns), is_total)
        SELECT experiment_id, variation_id, period, day, goal, ARRAY[c0, c1, c2, c3, c4],
            ARRAY[s0, s1, s2, s3, s4, s5, s6, s7, s8, s9], $20::bigint = 1
        FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::text[],
            $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[], $10::float8[], $11::float8[], $12::float8[],
            $13::float8[], $14::float8[], $15::float8[], $16::float8[], $17::float8[], $18::float8[], $19::float8[], $21::bigint[])
            AS new (experiment_id, variation_id, period, day, goal, c0, c1, c2, c3,
            s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, c4)
        """)

    /// Returns the statement that inserts rows.
    ///
    /// - Parameter areTotals: whether the rows are the totals of their keys.
    static func insert(_ rows: [TallyRow], areTotals: Bool = false) -> SQLQuery {
        var parameters: [SQLValue] = [
            .texts(rows.map(\.key.experimentID.string)), .texts(rows.map(\.key.variationID.string)),
            .integers(rows.map(\.key.period)), .integers(rows.map(\.key.day)),
            .texts(rows.map { $0.key.goal?.string }),
        ]
        for column in 0..<4 { parameters.append(.integers(rows.map { $0.counts[column] })) }
        for column in 0..<5 {
            parameters.append(.doubles(rows.map { $0.sums[column].value }))
            parameters.append(.doubles(rows.map { $0.sums[column].rest }))
        }
        parameters.append(.integer(areTotals ? 1 : 0))
        parameters.append(.integers(rows.map { $0.counts[4] }))
        return insertAll.query(parameters)
    }

    /// Returns the statement that inserts the changes of a transaction.
    static func insert(_ changes: TallyChanges) -> SQLQuery {
        let users = changes.users.map { key, counts in
            TallyRow(
                .init(
                    experimentID: key.experimentID, variationID: key.cohort.variationID, period: key.cohort.period,
                    day: key.cohort.day), counts)
        }
        let goals = changes.goals.map { key, tally in
            TallyRow(
                .init(experimentID: key.experimentID, variationID: key.variationID, day: key.day, goal: key.goal), tally
            )
        }
        return insert(users + goals)
    }
}

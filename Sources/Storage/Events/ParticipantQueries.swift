public import Bucketing
public import Chronology

/// A user who was exposed to an experiment, with the totals that results count.
public struct Participant: Sendable {
    public var userID: Identifier
    /// The variation, allocation period and day of the first exposure.
    public var cohort: Cohort
    public var exposedAt: Instant
    /// One user: counted, or excluded for a reason.
    public var users: UserCounts
    /// The totals under ``ParticipantScan/names``, in that order; `nil` where the user has none.
    public var totals: [UserGoal?]
    /// The current attributes; `nil` if the user has none, or if they were not requested.
    public var attributes: [UInt8]?

    package init(_ stored: StoredExposure, totals: [UserGoal?], attributes: [UInt8]?) {
        let exposure = stored.exposure
        userID = exposure.userID
        exposedAt = exposure.happenedAt
        cohort = Cohort(variationID: exposure.variationID, period: stored.period, day: exposure.happenedAt.day)
        users = StoredExposure.users(flags: Int64(stored.flags))
        self.totals = totals
        self.attributes = attributes
    }

    /// - Parameters:
    ///   - row: the columns that ``StoreQuery/participants(_:)`` selects.
    ///   - count: the number of totals.
    fileprivate init(_ row: any Row, totals count: Int) {
        userID = row.identifier(0)
        exposedAt = row.instant(2)
        cohort = Cohort(variationID: row.identifier(1), period: row.integer(4), day: exposedAt.day)
        users = StoredExposure.users(flags: row.integer(3))
        attributes = row.optionalBytes(5)
        totals = (0..<count).map { index in
            let first = Int32(6 + UserGoal.columns.count * index)
            return row.isNull(first) ? nil : UserGoal(row, at: first)
        }
    }
}

/// A page of the users of an experiment, in the byte order of their ids.
public struct ParticipantPage: Sendable {
    public var participants: [Participant]
    /// The last user of the page; `nil` if no more users follow.
    public var end: Identifier?

    package init(_ participants: [Participant], limit: Int) {
        self.participants = participants
        end = participants.count < limit ? nil : participants.last?.userID
    }
}

/// The users of an experiment to read, and the records to read of them.
public struct ParticipantScan: Sendable {
    public var experimentID: Identifier
    /// The goals and names of series whose totals are read.
    public var names: [Identifier]
    public var withAttributes = false
    /// The UTC days of the first exposure, from 1970-01-01; `nil` for all.
    public var enrolledOn: ClosedRange<Int64>?
    /// Only users after this one are read; `nil` for all.
    public var after: Identifier?
    public var limit = 2_000

    public init(_ experimentID: Identifier, names: [Identifier], withAttributes: Bool = false) {
        self.experimentID = experimentID
        self.names = names
        self.withAttributes = withAttributes
    }

    /// The times of the first exposure, as a half-open range.
    fileprivate var times: (from: Instant, to: Instant) {
        guard let days = enrolledOn else { return (.distantPast, .distantFuture) }
        return (Instant(day: days.lowerBound), Instant(day: days.upperBound) + .days(1))
    }
}

extension StoreQuery<ParticipantPage> {
    /// Reads users of an experiment. Pages are not one snapshot: each is read in its own. No user occurs twice.
    public static func participants(_ scan: ParticipantScan) -> Self {
        Self(.participants(scan)) { context in
            let (attributes, attributesTable) =
                switch context.dialect {
                case .sqlite: ("a.record", "user_attributes")
                case .postgreSQL: ("a.attributes", "users")
                }
            var columns = [
                "e.user_id, e.variation_id, e.happened_at, e.flags, e.period",
                scan.withAttributes ? attributes : "NULL",
            ]
            var joins: [String] = []
            for index in scan.names.indices {
                columns.append(UserGoal.columns.map { "t\(index).\($0)" }.joined(separator: ", "))
                joins.append(
                    """
                    LEFT JOIN user_goals t\(index) ON t\(index).user_id = e.user_id
                    AND t\(index).experiment_id = e.experiment_id AND t\(index).goal = $\(index + 6)
                    """)
            }
            if scan.withAttributes { joins.append("LEFT JOIN \(attributesTable) a ON a.user_id = e.user_id") }
            let sql = """
                SELECT \(columns.joined(separator: ", ")) FROM exposures e \(joins.joined(separator: "\n"))
                WHERE e.experiment_id = $1 AND e.user_id > $2 AND e.happened_at >= $4 AND e.happened_at < $5
                ORDER BY e.user_id LIMIT $3
                """
            let query = SQLQuery(
                "participants_\(scan.names.count)\(scan.withAttributes ? "_with_attributes" : "")", sql,
                [
                    .text(scan.experimentID), .text(scan.after?.string ?? ""), .integer(Int64(scan.limit)),
                    .instant(scan.times.from), .instant(scan.times.to),
                ]
                    + scan.names.map { .text($0) })
            var found: [Participant] = []
            return Reading([(query, { found.append(Participant($0, totals: scan.names.count)) })]) {
                .value(ParticipantPage(found, limit: scan.limit))
            }
        }
    }
}

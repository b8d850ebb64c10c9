public import Bucketing
public import Chronology

/// A user who was exposed to an experiment, with the totals that results count.
public struct Participant: Sendable {
    public var userID: Identifier
    /// The variation, allocation period and day of the first exposure.
    public var cohort: Cohort
    /// The time of the first exposure.
    public var exposedAt: Instant
    /// The user as a count of 1: ``UserCounts/counted``, or the reason for which results exclude the user.
    public var users: UserCounts
    /// The totals in the order of ``ParticipantScan/names``; `nil` where the user has none.
    public var totals: [UserGoal?]
    /// The bytes of the user's current ``AttributeRecord``; `nil` if the user has none, or if the scan did not request
    /// attributes.
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
    ///   - row: a row with the columns of ``ParticipantScan/sql(_:)``: user, variation, time, flags, period and
    ///     attributes, and then the columns of each total.
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

/// The parameters of a read of the users of an experiment.
public struct ParticipantScan: Sendable {
    public var experimentID: Identifier
    /// The goals and names of series whose totals are read.
    public var names: [Identifier]
    /// Whether attributes are read, too.
    public var withAttributes = false
    /// Only users whose first exposure was on one of these UTC days are read; `nil` for all days. Days are counted from
    /// 1970-01-01.
    public var enrolledOn: ClosedRange<Int64>?
    /// The last user of the preceding page; `nil` for the first page.
    public var after: Identifier?
    /// The maximum number of users of a page.
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
    /// Reads a page of the users of an experiment. Each page is read in a snapshot of its own, so users who are
    /// enrolled meanwhile may be missing. No user occurs twice.
    public static func participants(_ scan: ParticipantScan) -> Self {
        Self(.participants(scan)) { context in
            var found: [Participant] = []
            return Reading([(scan.query(context.dialect), { found.append(Participant($0, totals: scan.names.count)) })])
            {
                .value(ParticipantPage(found, limit: scan.limit))
            }
        }
    }
}

extension ParticipantScan {
    /// Selects the users and their records.
    fileprivate func query(_ dialect: SQLDialect) -> SQLQuery {
        let parameters: [SQLValue] = [
            .text(experimentID), .text(after?.string ?? ""), .integer(Int64(limit)), .instant(times.from),
            .instant(times.to),
        ]
        return SQLQuery(
            "participants_\(names.count)\(withAttributes ? "_with_attributes" : "")", sql(dialect),
            parameters + names.map { .text($0) })
    }

    /// The parameters from 6 on are the ``names``. Each total is joined as a table of its own: `t0`, `t1`…
    fileprivate func sql(_ dialect: SQLDialect) -> String {
        let (attributes, attributesTable) =
            switch dialect {
            case .sqlite: ("a.record", "user_attributes")
            case .postgreSQL: ("a.attributes", "users")
            }
        var columns = [
            "e.user_id, e.variation_id, e.happened_at, e.flags, e.period",
            withAttributes ? attributes : "NULL",
        ]
        var joins: [String] = []
        for index in names.indices {
            columns.append(UserGoal.columns.map { "t\(index).\($0)" }.joined(separator: ", "))
            joins.append(
                """
                LEFT JOIN user_goals t\(index) ON t\(index).user_id = e.user_id
                AND t\(index).experiment_id = e.experiment_id AND t\(index).goal = $\(index + 6)
                """)
        }
        if withAttributes { joins.append("LEFT JOIN \(attributesTable) a ON a.user_id = e.user_id") }
        return """
            SELECT \(columns.joined(separator: ", ")) FROM exposures e \(joins.joined(separator: "\n"))
            WHERE e.experiment_id = $1 AND e.user_id > $2 AND e.happened_at >= $4 AND e.happened_at < $5
            ORDER BY e.user_id LIMIT $3
            """
    }
}

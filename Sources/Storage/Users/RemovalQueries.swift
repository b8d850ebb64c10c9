public import Bucketing
package import Chronology
import Dispatch

extension StoreQuery<[RemovedUser]> {
    /// Reads the erasures and merges of users within ``ErasureRules/memoryForEdges``.
    public static func removedUsers(_ userIDs: [Identifier]) -> Self {
        Self(.removedUsers(userIDs)) { context in
            .all(RemovedUser.query(of: userIDs, context.dialect)) { RemovedUser($0) }
        }
    }
}

extension StoreQuery<[UserRemoval]> {
    /// Reads the users whom any process has recently erased or merged. A user may occur more than once.
    ///
    /// - Parameter time: the greatest ``UserRemoval/time`` that the caller knows. Later removals are read, and perhaps
    ///   some that the caller knows already.
    public static func removals(after time: Int64) -> Self {
        Self(.removals(after: time)) { context in
            let query =
                switch context.dialect {
                // Times later than now were recorded before the machine was restarted.
                case .sqlite:
                    SQLQuery(
                        "removals",
                        "SELECT user_hash, erased_at FROM erasures WHERE erased_at > $1 AND erased_at <= $2",
                        .integer(time), .integer(Int64(clamping: DispatchTime.now().uptimeNanoseconds)))
                // Times are in microseconds. A removal has the time at which its transaction began, and a long
                // transaction may commit after later ones, so the read reaches back by the duration of the longest
                // transaction.
                case .postgreSQL:
                    SQLQuery(
                        "removals",
                        """
                        SELECT user_hash, (extract(epoch FROM erased_at) * 1000000)::bigint FROM erasures
                        WHERE erased_at > to_timestamp($1::bigint / 1000000.0::float8) - make_interval(secs => $2)
                        """, .integer(time), .double(context.longestTransaction))
                }
            return .all(query) { UserRemoval(mark: $0.integer(0), time: $0.integer(1)) }
        }
    }
}

extension RemovedUser {
    /// The columns in the order of ``init(_:)``.
    package static let columns = "user_hash, removed_at, account"

    /// - Parameter row: a row with the ``columns``.
    package init(_ row: any Row) {
        self.init(userHash: row.integer(0), removedAt: row.instant(1), account: row.optionalIdentifier(2))
    }

    /// Selects the erasures and merges of users.
    package static func query(of userIDs: [Identifier], _ dialect: SQLDialect) -> SQLQuery {
        let hashes =
            switch dialect {
            case .sqlite: "SELECT value FROM json_each($1)"
            case .postgreSQL: "SELECT value::bigint FROM json_array_elements_text($1::json)"
            }
        let list = userIDs.map { String(ErasureRules.hash($0)) }.joined(separator: ",")
        return SQLQuery(
            "removed_users", "SELECT \(columns) FROM removed_users WHERE user_hash IN (\(hashes))",
            .text("[\(list)]"))
    }

    /// Returns the statements that record a removal, in order.
    ///
    /// - Parameter account: the account into which the user was merged; `nil` for a user who was erased.
    package static func statements(
        _ userID: Identifier, into account: Identifier?, at now: Instant, _ dialect: SQLDialect
    ) -> [SQLQuery] {
        let hash = SQLValue.integer(ErasureRules.hash(userID))
        let user = SQLValue.text(userID)
        var statements = [
            // Users who were merged into this user earlier now belong to the account, or are erased with this user.
            SQLQuery(
                "move_removed_users", "UPDATE removed_users SET account = $2 WHERE account = $1", user, .text(account)),
            // Replaces the last removal of the user if it was the same. Otherwise an app that logs its user in at each
            // start would add a row each time.
            SQLQuery(
                account == nil ? "repeat_erasure" : "repeat_merge",
                """
                DELETE FROM removed_users WHERE user_hash = $1
                    AND removed_at = (SELECT max(removed_at) FROM removed_users WHERE user_hash = $1)
                    AND account \(account == nil ? "IS NULL" : "= $2")
                """, account.map { [hash, .text($0)] } ?? [hash]),
            SQLQuery(
                "insert_removed_user",
                """
                INSERT INTO removed_users (\(columns)) VALUES ($1, $2, $3)
                ON CONFLICT (user_hash, removed_at) DO UPDATE SET account = excluded.account
                """, hash, .instant(now), .text(account)),
        ]
        if account == nil {
            statements.append(
                SQLQuery(
                    "anonymize_merges",
                    "UPDATE audit SET after = \(dialect.afterWithoutFrom) WHERE \(merges(dialect, "= $1"))", user))
        }
        return statements
    }

    /// Deletes the removals that are older than ``ErasureRules/memoryForEdges``.
    ///
    /// - Parameter now: the present time.
    package static func prune(before now: Instant) -> SQLQuery {
        SQLQuery(
            "prune_removed_users", "DELETE FROM removed_users WHERE removed_at < $1",
            .instant(now - ErasureRules.memoryForEdges))
    }

    /// Returns the condition for audit entries about merges, by the merged user. The databases have a partial index for
    /// exactly this condition.
    ///
    /// - Parameter comparison: the comparison with the id of the merged user, such as `= $1`.
    package static func merges(_ dialect: SQLDialect, _ comparison: String) -> String {
        "action = 'profile.merge' AND \(mergedUser(dialect)) \(comparison)"
    }

    /// Returns the expression for the id of the merged user in an audit entry about a merge.
    package static func mergedUser(_ dialect: SQLDialect) -> String {
        switch dialect {
        case .sqlite: "(after ->> 'from')"
        case .postgreSQL: "(after::json ->> 'from')"
        }
    }
}

extension SQLDialect {
    /// The expression for the column `after` of an audit entry about a merge, without the id of the merged user.
    fileprivate var afterWithoutFrom: String {
        switch self {
        // The dollar sign is written as char(36), because it would begin a parameter.
        case .sqlite: "json_set(after, char(36) || '.from', NULL)"
        case .postgreSQL: "jsonb_set(after::jsonb, '{from}', 'null')::text"
        }
    }
}

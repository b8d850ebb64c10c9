public import Bucketing

extension StoreQuery<ProfilePage> {
    /// Reads up to `limit` profiles after a user, in the byte order of user ids. Expired profiles are left out.
    public static func profiles(after: Identifier?, limit: Int) -> Self {
        Self(.profiles(after: after, limit: limit)) { context in
            var rows: [(userID: Identifier, record: [UInt8])] = []
            let sql =
                switch context.dialect {
                case .sqlite: "SELECT user_id, record FROM profiles WHERE user_id > $1 ORDER BY user_id LIMIT $2"
                case .postgreSQL:
                    """
                    SELECT user_id, profile FROM users WHERE user_id > $1 AND profile IS NOT NULL
                    ORDER BY user_id LIMIT $2
                    """
                }
            // User ids are not empty, so all of them follow the empty text.
            let query = SQLQuery("profile_page", sql, .text(after?.string ?? ""), .integer(limit))
            return Reading([(query, { rows.append(($0.identifier(0), $0.bytes(1))) })]) { () throws(StorageError) in
                let now = context.clock.now()
                var page = ProfilePage(profiles: [], end: rows.count < limit ? nil : rows.last?.userID)
                for (userID, record) in rows {
                    guard let profile = try ProfileRecord(stored: record, of: userID).visible(at: now) else { continue }
                    page.profiles.append((userID, profile))
                }
                return .value(page)
            }
        }
    }
}

extension StoreQuery<UserRecordPage> {
    /// Reads users with a profile or attributes, in the byte order of user ids.
    ///
    /// - Parameters:
    ///   - after: only users after this one are read; `nil` reads from the first user.
    ///   - limit: the maximum number of records, at least 3: a user has up to two records, and a page that is not the
    ///     last must have more than one user.
    public static func userRecords(after: Identifier?, limit: Int) -> Self {
        Self(.userRecords(after: after, limit: limit)) { context in
            let sql =
                switch context.dialect {
                // The two tables are merged in the order of their keys while they are read.
                case .sqlite:
                    """
                    SELECT user_id, record, NULL FROM profiles WHERE user_id > $1
                    UNION ALL SELECT user_id, NULL, record FROM user_attributes WHERE user_id > $1
                    ORDER BY user_id LIMIT $2
                    """
                case .postgreSQL:
                    """
                    SELECT user_id, profile, attributes FROM users
                    WHERE user_id > $1 AND (profile IS NOT NULL OR attributes IS NOT NULL) ORDER BY user_id LIMIT $2
                    """
                }
            var lines = UserRecordLines()
            var rows = 0
            let query = SQLQuery("user_records", sql, .text(after?.string ?? ""), .integer(limit))
            let take: (any Row) -> Void = { row in
                rows += 1
                row.withBytes(0) { lines.begin($0) }
                if !row.isNull(1) { row.withBytes(1) { lines.add(profile: $0) } }
                if !row.isNull(2) { row.withBytes(2) { lines.add(attributes: $0) } }
            }
            return Reading([(query, take)]) { .value(lines.page(isLast: rows < limit)) }
        }
    }
}

/// A user with a stored profile or attributes.
public struct KnownUser: Sendable, Equatable {
    public var userID: Identifier
    /// The number of assignments that have not expired.
    public var assignments: Int

    public init(userID: Identifier, assignments: Int) {
        self.userID = userID
        self.assignments = assignments
    }
}

extension StoreQuery<[KnownUser]> {
    /// Reads up to `limit` users whose ids begin with a text, in the byte order of their ids. A user whose assignments
    /// have all expired, and who has no attributes, is left out.
    ///
    /// - Parameter after: only users after this one are read; `nil` reads from the first user.
    public static func knownUsers(prefix: String, after: Identifier?, limit: Int) -> Self {
        Self(.knownUsers(prefix: prefix, after: after, limit: limit)) { context in
            let range = "user_id >= $1 AND user_id > $2"
            // In SQLite a user may be in both tables, so up to `limit` users of each are combined.
            let sql =
                switch context.dialect {
                case .sqlite:
                    """
                    SELECT user_id, max(record), max(has_attributes) FROM (
                        SELECT * FROM (
                            SELECT user_id, record, 0 AS has_attributes FROM profiles
                            WHERE \(range) ORDER BY user_id LIMIT $3)
                        UNION ALL
                        SELECT * FROM (
                            SELECT user_id, NULL, 1 FROM user_attributes WHERE \(range) ORDER BY user_id LIMIT $3)
                    ) GROUP BY user_id ORDER BY user_id LIMIT $3
                    """
                case .postgreSQL:
                    """
                    SELECT user_id, profile, CASE WHEN attributes IS NULL THEN 0 ELSE 1 END FROM users
                    WHERE \(range) AND (profile IS NOT NULL OR attributes IS NOT NULL) ORDER BY user_id LIMIT $3
                    """
                }
            var rows: [(userID: Identifier, record: [UInt8]?, hasAttributes: Bool)] = []
            let query = SQLQuery("known_users", sql, .text(prefix), .text(after?.string ?? ""), .integer(limit))
            let take: (any Row) -> Void = { rows.append(($0.identifier(0), $0.optionalBytes(1), $0.integer(2) != 0)) }
            return Reading([(query, take)]) { () throws(StorageError) in
                let now = context.clock.now()
                var users: [KnownUser] = []
                // Ids with the prefix come first in the order of ids from the prefix on. Other ids follow them.
                let withPrefix = rows.prefix { row in row.userID.string.utf8.starts(with: prefix.utf8) }
                for (userID, record, hasAttributes) in withPrefix {
                    let profile = try record.flatMap { record throws(StorageError) in
                        try ProfileRecord(stored: record, of: userID).visible(at: now)
                    }
                    guard profile != nil || hasAttributes else { continue }
                    users.append(KnownUser(userID: userID, assignments: profile?.count ?? 0))
                }
                return .value(users)
            }
        }
    }
}

extension StoreQuery<UserRecords> {
    /// Reads ``UserRecords/everything`` about a user, in one snapshot.
    public static func records(of userID: Identifier) -> Self {
        Self(.records(of: userID)) { context in
            var records = UserRecords(userID: userID)
            let steps = UserRecords.everything.flatMap { part in
                UserRecords.rows(of: part, userID, context.dialect).map { part, keys -> Reading<UserRecords>.Step in
                    (part.rows.query(keys), { part.take($0, &records) })
                }
            }
            return Reading(steps) { .value(records) }
        }
    }
}

extension StoreQuery<[StickyDocument?]> {
    /// Reads the documents with some keys. The result has the order of the keys, with `nil` for a document that does
    /// not exist.
    public static func stickyDocuments(_ keys: [StickyDocumentKey]) -> Self {
        Self(.stickyDocuments(keys)) { _ in
            var contents = [String?](repeating: nil, count: keys.count)
            let steps = keys.enumerated().map { index, key -> Reading<[StickyDocument?]>.Step in
                (SharedRecords.find(key), { contents[index] = $0.text(0) })
            }
            return Reading(steps) { () throws(StorageError) in
                var documents: [StickyDocument?] = []
                for (key, content) in zip(keys, contents) {
                    guard let content else {
                        documents.append(nil)
                        continue
                    }
                    documents.append(try StickyDocument(key: key, content: content))
                }
                return .value(documents)
            }
        }
    }
}

extension StoreQuery<SegmentPage> {
    /// Scans the users who have attributes, in the byte order of their ids, without blocking writers or other readers.
    /// The scan is not a snapshot: it sees each user's attributes at the moment it reaches the user.
    ///
    /// - Parameter scope: whether to list a page of users or to count all.
    public static func users(_ matcher: SegmentMatcher, _ scope: SegmentScan) -> Self {
        Self(.users(matcher, scope)) { context in
            var page = SegmentPage()
            if case .users(let after) = scope { page.last = after }
            return scan(matcher, scope, page, context)
        }
    }

    /// Scans the next users, and continues until the page has users or all users have been scanned.
    ///
    /// - Parameter former: the page so far.
    private static func scan(
        _ matcher: SegmentMatcher, _ scope: SegmentScan, _ former: SegmentPage, _ context: ReadingContext
    ) -> Reading<SegmentPage> {
        let sql =
            switch context.dialect {
            case .sqlite: "SELECT user_id, record FROM user_attributes WHERE user_id > $1 ORDER BY user_id LIMIT $2"
            case .postgreSQL:
                """
                SELECT user_id, attributes FROM users WHERE user_id > $1 AND attributes IS NOT NULL
                ORDER BY user_id LIMIT $2
                """
            }
        let query = SQLQuery(
            "segment_scan", sql, .text(former.last?.string ?? ""), .integer(context.scanRows))
        let isListing = if case .users = scope { true } else { false }
        var page = former
        var rows = 0
        page.last = nil
        let take: (any Row) -> Void = { row in
            rows += 1
            // Users may follow only if there are as many rows as the statement reads at most.
            if rows == context.scanRows { page.last = row.identifier(0) }
            guard row.withBytes(1, matcher.matches) else { return }
            page.matches += 1
            if isListing { page.userIDs.append(row.identifier(0)) }
        }
        return Reading([(query, take)]) {
            page.examined += rows
            let isDone = page.last == nil || !page.userIDs.isEmpty
            return isDone ? .value(page) : .more(scan(matcher, scope, page, context))
        }
    }
}

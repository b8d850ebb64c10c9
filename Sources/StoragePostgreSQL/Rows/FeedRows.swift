import Storage

/// The tables of the feed.
enum FeedRows {
    /// Inserts the entries of a transaction. The transaction must have an id already (see
    /// ``StoreQuery/feed(from:limit:)``), and must have locked the rows of the users.
    static let insert = Statement("insert_feed", "INSERT INTO feed (recorded_at, entries) VALUES ($1, $2)")
    /// Gives an id to a transaction that has written to other nodes only, and therefore has none on this one.
    static let assignTransaction = Statement("feed_assign_transaction", "SELECT pg_current_xact_id()::text")

    /// Reads the state of the feed, and keeps other transactions from changing it.
    static let lockState = Statement(
        "feed_state_locked", "SELECT \(FeedState.columns) FROM feed_state FOR UPDATE")

    /// Begins or ends the feed according to the mode. While the feed is off, its epoch is 0. Blocks until done.
    ///
    /// - Returns: whether changes are added to the feed from now on.
    static func open(_ mode: FeedMode, _ handle: Handle) throws(PostgreSQLError) -> Bool {
        let text = try handle.execute("SELECT epoch FROM feed_state").first?.first
        var state = FeedState()
        state.epoch = text.flatMap { $0 }.flatMap { Int64($0) } ?? 0
        if case .kept = mode { try handle.run(FeedState.identify()) }
        guard let epoch = state.newEpoch(mode) else { return state.epoch != 0 }
        // If several servers start together, only the first one changes the epoch.
        try handle.run(FeedState.setEpoch(epoch, replacing: state.epoch, .postgreSQL))
        return epoch != 0
    }
}

extension Statement {
    /// Returns the statement extended by an insertion of entries into the feed, for the users whose rows it has
    /// changed. The statement must return these users. The insertion takes a number after all users' rows are locked.
    ///
    /// - Parameters:
    ///   - time: the index of the parameter with the time.
    ///   - entries: the index of the parameter with the entries of each user.
    func feeding(time: Int, entries: Int) -> Statement {
        Statement(
            "\(name)_feeding",
            """
            WITH touched AS (\(sql)), fed AS (
                INSERT INTO feed (recorded_at, entries)
                SELECT $\(time)::bigint, string_agg(new.entries, ''::bytea ORDER BY new.place)
                FROM unnest($1::text[], $\(entries)::bytea[]) WITH ORDINALITY AS new (user_id, entries, place)
                JOIN touched USING (user_id)
                WHERE new.entries <> ''::bytea HAVING count(*) > 0
            )
            SELECT user_id FROM touched
            """)
    }
}

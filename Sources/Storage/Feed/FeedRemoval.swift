package import Bucketing

/// A record that a user was erased, or merged into another. The record determines whether readers still get the earlier
/// entries of the user in the feed.
///
/// An erasure removes all entries of the user from the feed, including the entries under ids that were merged into the
/// user. Readers no longer get these entries, and ``FeedScrubbing`` overwrites them. The entries of the erasure and of
/// merges stay until retention deletes them, because readers must repeat the erasure and the merges.
package struct FeedRemoval: Sendable {
    /// See ``ErasureRules/hash(_:)``.
    package let userHash: Int64
    /// The number of the row with the erasure or merge. The record applies to the user's earlier entries.
    package let number: Int64
    /// The hash of the account to which the earlier entries belong since a merge; `nil` once they are erased.
    package let accountHash: Int64?

    package init(userHash: Int64, number: Int64, accountHash: Int64?) {
        self.userHash = userHash
        self.number = number
        self.accountHash = accountHash
    }

    /// The columns in the order of ``init(_:)``.
    package static let columns = "user_hash, number, account_hash"

    /// - Parameter row: a row with the ``columns``.
    package init(_ row: any Row) {
        self.init(
            userHash: row.integer(0), number: row.integer(1), accountHash: row.isNull(2) ? nil : row.integer(2))
    }

    /// A write that removes a user. The associated values are hashes; see ``ErasureRules/hash(_:)``.
    package enum Cause: Sendable {
        case erasure(user: Int64)
        case merge(user: Int64, account: Int64)

        /// - Returns: `nil` for a write that removes nobody.
        package init?(_ write: UserRecords.Write, of userID: Identifier) {
            switch write {
            case .noteRemoval(nil): self = .erasure(user: ErasureRules.hash(userID))
            case .takeOver(let other):
                self = .merge(user: ErasureRules.hash(other), account: ErasureRules.hash(userID))
            default: return nil
            }
        }

        /// Returns the statements that store the removal, in order.
        ///
        /// - Parameter number: the number of the row with the entry; `nil` for the last number that the PostgreSQL
        ///   session has drawn.
        package func statements(number: Int64?) -> [SQLQuery] {
            let (user, account): (Int64, Int64?) =
                switch self {
                case .erasure(let user): (user, nil)
                case .merge(let user, let account): (user, account)
                }
            let numberExpression = number == nil ? "currval('feed_numbers')" : "$3"
            let numbers = number.map { [SQLValue.integer($0)] } ?? []
            return [
                // Users who were merged into this user earlier now belong to the account, or are erased with this user.
                SQLQuery(
                    "feed_move_removals", "UPDATE feed_removals SET account_hash = $2 WHERE account_hash = $1",
                    .integer(user), .integer(account)),
                SQLQuery(
                    "feed_insert_removal",
                    """
                    INSERT INTO feed_removals (user_hash, number, account_hash) VALUES ($1, \(numberExpression), $2)
                    ON CONFLICT (user_hash, number) DO UPDATE SET account_hash = excluded.account_hash
                    """, [.integer(user), .integer(account)] + numbers),
            ]
        }
    }
}

extension FeedRow {
    /// Returns the hashes of the users whose entries in this row an erasure would remove.
    ///
    /// - Throws: ``StorageError/unavailable(reason:)`` if the row is damaged, or of a newer release.
    package func userHashes() throws(StorageError) -> Set<Int64> {
        var hashes: Set<Int64> = []
        try forEachEntry { entry, _ in if entry.kind.isErasable { hashes.insert(ErasureRules.hash(entry.userID)) } }
        return hashes
    }

    /// Returns the row without the entries of erased users. The positions of lines stay the same.
    ///
    /// - Parameter removals: the removals of all users of the row, and perhaps others.
    /// - Throws: ``StorageError/unavailable(reason:)`` if the row is damaged, or of a newer release.
    package func scrubbed(by removals: [FeedRemoval]) throws(StorageError) -> FeedRow {
        var removalsByUser: [Int64: [FeedRemoval]] = [:]
        for removal in removals where removal.number >= number {
            removalsByUser[removal.userHash, default: []].append(removal)
        }
        guard !removalsByUser.isEmpty else { return self }
        let removalPositions = try removalPositions()
        /// Returns the first removal of the user after an entry. Only the first counts, because an id may be used again
        /// after a merge.
        func firstRemoval(after entry: FeedDecoder.Entry) -> FeedRemoval? {
            guard entry.kind.isErasable else { return nil }
            let isRemovedInThisRow = (removalPositions[entry.userID] ?? -1) > entry.range.lowerBound
            return removalsByUser[ErasureRules.hash(entry.userID)]?
                .filter { $0.number > number || isRemovedInThisRow }
                .min { $0.number < $1.number }
        }
        var output = FeedEncoder()
        var hasChanged = false
        try forEachEntry { entry, decoder throws(ProfileRecordDamage) in
            guard let removal = firstRemoval(after: entry), removal.accountHash == nil else {
                return output.append(copying: entry, of: entries)
            }
            output.append(erased: try decoder.lineCount(entry))
            hasChanged = true
        }
        return hasChanged ? FeedRow(number: number, recordedAt: recordedAt, entries: output.bytes) : self
    }

    /// Returns the positions of the erasures and merges in this row, by the erased or merged user. A removal in the row
    /// itself applies only to the entries before its position.
    private func removalPositions() throws(StorageError) -> [Identifier: Int] {
        var positions: [Identifier: Int] = [:]
        try forEachEntry { entry, decoder throws(ProfileRecordDamage) in
            if entry.kind == .erasure { positions[entry.userID] = entry.range.lowerBound }
            if let other = try decoder.mergedUser(entry) { positions[other] = entry.range.lowerBound }
        }
        return positions
    }
}

extension FeedRow.EntryKind {
    /// Whether an erasure of the user removes entries of this kind. Merges and erasures stay, because readers must
    /// repeat them.
    fileprivate var isErasable: Bool {
        switch self {
        case .assignments, .exposure, .goal, .attributes: true
        case .erased, .merge, .erasure: false
        }
    }
}

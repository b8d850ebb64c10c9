package import Bucketing

/// A record that a user was erased, or merged into another. It determines what happens to the entries of the user that
/// the feed had before.
///
/// An erasure removes all entries of the user from the feed, including those under ids that were merged into the user.
/// Readers no longer get them, and a sweep overwrites them. The entries of the erasure and of merges stay until
/// retention deletes them, because readers need them.
package struct FeedRemoval: Sendable {
    package let userHash: Int64
    /// The number of the row with the erasure or merge. The record applies to the entries before it.
    package let number: Int64
    /// The hash of the user to whom the entries belong since a merge; `nil` once they are erased.
    package let accountHash: Int64?

    package init(userHash: Int64, number: Int64, accountHash: Int64?) {
        self.userHash = userHash
        self.number = number
        self.accountHash = accountHash
    }

    /// The columns in the order of ``init(_:)``.
    package static let columns = "user_hash, number, account_hash"

    package init(_ row: any Row) {
        self.init(
            userHash: row.integer(0), number: row.integer(1), accountHash: row.isNull(2) ? nil : row.integer(2))
    }

    /// The removal that a write of a rule causes.
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
            let place = number == nil ? "currval('feed_numbers')" : "$3"
            let numbers = number.map { [SQLValue.integer($0)] } ?? []
            return [
                SQLQuery(
                    "feed_move_removals", "UPDATE feed_removals SET account_hash = $2 WHERE account_hash = $1",
                    .integer(user), .integer(account)),
                SQLQuery(
                    "feed_insert_removal",
                    """
                    INSERT INTO feed_removals (user_hash, number, account_hash) VALUES ($1, \(place), $2)
                    ON CONFLICT (user_hash, number) DO UPDATE SET account_hash = excluded.account_hash
                    """, [.integer(user), .integer(account)] + numbers),
            ]
        }
    }
}

extension FeedRow {
    /// Returns the hashes of the users of all entries that an erasure removes.
    package func userHashes() throws(StorageError) -> Set<Int64> {
        var hashes: Set<Int64> = []
        try forEachEntry { entry, _ in if entry.kind.isErasable { hashes.insert(ErasureRules.hash(entry.userID)) } }
        return hashes
    }

    /// Returns the row without the entries of erased users. The positions of lines stay the same.
    ///
    /// - Parameter removals: the removals of all users of the row, and perhaps others.
    package func scrubbed(by removals: [FeedRemoval]) throws(StorageError) -> FeedRow {
        var byUser: [Int64: [FeedRemoval]] = [:]
        for removal in removals where removal.number >= number { byUser[removal.userHash, default: []].append(removal) }
        guard !byUser.isEmpty else { return self }
        // In the row of an erasure or merge itself, only the entries before it are removed.
        var removedAt: [Identifier: Int] = [:]
        try forEachEntry { entry, decoder throws(ProfileRecordDamage) in
            if entry.kind == .erasure { removedAt[entry.userID] = entry.range.lowerBound }
            if let other = try decoder.mergedUser(entry) { removedAt[other] = entry.range.lowerBound }
        }
        /// Returns the first removal of the user after an entry. Only the first counts, because an id may be used again
        /// after a merge.
        func firstRemoval(after entry: FeedDecoder.Entry) -> FeedRemoval? {
            guard entry.kind.isErasable else { return nil }
            let position = entry.range.lowerBound
            return byUser[ErasureRules.hash(entry.userID)]?
                .filter { $0.number > number || (removedAt[entry.userID] ?? -1) > position }
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
}

extension FeedEntry.Kind {
    /// Whether an erasure of the user removes entries of this kind. Merges and erasures stay, because readers need
    /// them.
    fileprivate var isErasable: Bool {
        switch self {
        case .assignments, .exposure, .goal, .attributes: true
        case .erased, .merge, .erasure: false
        }
    }
}

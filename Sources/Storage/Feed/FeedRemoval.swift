package import Bucketing

/// Says whose the entries of a user are that the feed had when the user was erased, or merged into another.
///
/// An erasure takes back what the feed still has of the user, under whatever ids merges have brought together. A reader
/// never sees it again, and a sweep overwrites it. What stays until retention deletes it are the entries of the erasure and
/// of merges, which readers need.
package struct FeedRemoval: Sendable {
    package let userHash: Int64
    /// The row of the erasure or merge: entries before it are concerned.
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

    /// What a write removes.
    package enum Cause: Sendable {
        case erasure(user: Int64)
        case merge(user: Int64, account: Int64)

        /// - Returns: `nil` for any other write.
        package init?(_ write: UserRecords.Write, of userID: Identifier) {
            switch write {
            case .noteRemoval(nil): self = .erasure(user: ErasureRules.hash(userID))
            case .takeOver(let other):
                self = .merge(user: ErasureRules.hash(other), account: ErasureRules.hash(userID))
            default: return nil
            }
        }

        /// The statements that note it, in order.
        ///
        /// - Parameter number: that of the row with its entry; `nil` for the last that the session of PostgreSQL has drawn.
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
    /// The hashes of the users of all entries that an erasure takes back.
    package func userHashes() throws(StorageError) -> Set<Int64> {
        var hashes: Set<Int64> = []
        try forEachEntry { entry, _ in if entry.kind.isErasable { hashes.insert(ErasureRules.hash(entry.userID)) } }
        return hashes
    }

    /// Returns the row without the entries of erased users. The places of lines stay.
    ///
    /// - Parameter removals: at least those of the users of the row.
    package func scrubbed(by removals: [FeedRemoval]) throws(StorageError) -> FeedRow {
        var byUser: [Int64: [FeedRemoval]] = [:]
        for removal in removals where removal.number >= number { byUser[removal.userHash, default: []].append(removal) }
        guard !byUser.isEmpty else { return self }
        // Of the entries in the row of an erasure or merge, those before it.
        var removedBefore: [Identifier: Int] = [:]
        try forEachEntry { entry, decoder throws(ProfileRecordDamage) in
            if entry.kind == .erasure { removedBefore[entry.userID] = entry.range.lowerBound }
            if let other = try decoder.mergedUser(entry) { removedBefore[other] = entry.range.lowerBound }
        }
        var output = FeedEncoder()
        var hasChanged = false
        try forEachEntry { entry, decoder throws(ProfileRecordDamage) in
            // The first one after the entry: after a merge an id may be used again.
            let next =
                !entry.kind.isErasable
                ? nil
                : byUser[ErasureRules.hash(entry.userID)]?
                    .filter { $0.number > number || (removedBefore[entry.userID] ?? -1) > entry.range.lowerBound }
                    .min { $0.number < $1.number }
            guard let next, next.accountHash == nil else { return output.append(copying: entry, of: entries) }
            output.append(erased: try decoder.lineCount(entry))
            hasChanged = true
        }
        return hasChanged ? FeedRow(number: number, recordedAt: recordedAt, entries: output.bytes) : self
    }
}

extension FeedEntry.Kind {
    fileprivate var isErasable: Bool {
        switch self {
        case .assignments, .exposure, .goal, .attributes: true
        case .erased, .merge, .erasure: false
        }
    }
}

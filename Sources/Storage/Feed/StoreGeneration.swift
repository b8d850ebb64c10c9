/// Which store something is of, and which of its lives: a restore, and whatever else makes a store go back in time, begins
/// another one. Copies, cursors and decisions of another generation are refused and made anew.
public struct StoreGeneration: Sendable, Hashable {
    /// Identifies the store; it stays the same in a restored database, and in a copy. 0 if it has never had a feed.
    public var storeID: Int64
    /// The ``FeedCursor/epoch`` of its feed; 0 if there is none.
    public var epoch: Int64

    public init(storeID: Int64, epoch: Int64) {
        self.storeID = storeID
        self.epoch = epoch
    }

    /// Reads ``text``.
    public init?(_ text: String) {
        let parts = text.split(separator: "-", omittingEmptySubsequences: false)
        guard parts.count == 2, let storeID = Int64(parts[0], radix: 16), let epoch = Int64(parts[1], radix: 16),
            storeID >= 0, epoch >= 0
        else { return nil }
        self.init(storeID: storeID, epoch: epoch)
    }

    public var text: String { "\(String(storeID, radix: 16))-\(String(epoch, radix: 16))" }

    package static func random() -> Int64 { .random(in: 1...Int64(UInt32.max)) }
}

/// A new generation of a store that has gone back in time, because somebody presented what it does not have.
package struct GenerationRenewal: Sendable {
    /// The epoch that is left: it is no longer the store's if another process was faster.
    package let former: Int64
    /// The epoch that was presented: from now on it is known to be of another generation.
    package let presented: Int64

    /// Begins another feed. What is there of the former one is no longer delivered.
    package func statement(_ dialect: SQLDialect) -> SQLQuery {
        FeedState.setEpoch(StoreGeneration.random(), replacing: former, presented: presented, dialect)
    }
}

extension SharedChange<Void> {
    /// Gives the store another generation; see ``GenerationRenewal``. It is recorded in the audit log.
    public static func renewGeneration(_ former: StoreGeneration, presented: Int64, by author: Author) -> Self {
        Self { records, _ in
            records.write(.renewGeneration(GenerationRenewal(former: former.epoch, presented: presented)))
            records.record(AuditNote(.generationRenew, of: String(former.epoch, radix: 16)), by: author)
        }
    }
}

/// Header fields by which an edge and its upstream know each other. A response without the upstream's fields is not of
/// Holdfast, but of something else at its address.
public enum EdgeFields {
    /// Of requests: an edge asks.
    public static let edge: StaticString = "Holdfast-Edge"
    /// Of responses: the ``StoreGeneration/text`` of the store, or ``isEdge``.
    public static let generation: StaticString = "Holdfast-Generation"
    /// Of responses: the time of the store, in milliseconds since 1970.
    public static let time: StaticString = "Holdfast-Time"
    /// The generation that an edge names: it has none of its own.
    public static let isEdge = "edge"
}

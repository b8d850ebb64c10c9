/// Identifies a store and its generation. A store gets a new generation when it goes back in time, for example by a
/// restore. Copies, cursors and decisions of another generation are refused and must be made again.
public struct StoreGeneration: Sendable, Hashable {
    /// Identifies the store. A restored database and a copy have the same id. 0 if the store has never had a feed.
    public var storeID: Int64
    /// The ``FeedCursor/epoch`` of the store's feed; 0 if there is no feed.
    public var epoch: Int64

    public init(storeID: Int64, epoch: Int64) {
        self.storeID = storeID
        self.epoch = epoch
    }

    /// Parses ``text``.
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

/// The renewal of a store's generation after the store has gone back in time: after `holdfast restore`, or when a
/// client presents a cursor or an epoch that the store does not have.
package struct GenerationRenewal: Sendable {
    /// The epoch to replace. The store has another one if another process was faster.
    package let former: Int64
    /// The epoch that was presented, which from now on is known to belong to another generation; 0 if there is none.
    package let presented: Int64

    /// Returns the statement that begins a new feed. Rows of the former feed are no longer delivered.
    package func statement(_ dialect: SQLDialect) -> SQLQuery {
        FeedState.setEpoch(StoreGeneration.random(), replacing: former, presented: presented, dialect)
    }
}

extension SharedChange<Void> {
    /// Gives the store a new generation, and records that in the audit log; see ``GenerationRenewal``.
    public static func renewGeneration(_ former: StoreGeneration, presented: Int64, by author: Author) -> Self {
        Self { records, _ in
            records.write(.renewGeneration(GenerationRenewal(former: former.epoch, presented: presented)))
            records.record(AuditNote(.generationRenew, of: String(former.epoch, radix: 16)), by: author)
        }
    }
}

/// Header fields by which an edge and its upstream identify themselves. A response without the upstream's fields does
/// not come from Holdfast, but from something else at its address.
public enum EdgeFields {
    /// The field that marks a request of an edge.
    public static let edge: StaticString = "Holdfast-Edge"
    /// The response field with the ``StoreGeneration/text`` of the store, or ``isEdge``.
    public static let generation: StaticString = "Holdfast-Generation"
    /// The response field with the time of the store, in milliseconds since 1970.
    public static let time: StaticString = "Holdfast-Time"
    /// The value of ``generation`` in responses of an edge, which has no generation of its own.
    public static let isEdge = "edge"
}

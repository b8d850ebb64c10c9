/// Identifies a store and its generation. A store gets a new generation when it goes back in time, for example by a
/// restore. It then refuses copies, cursors and decisions of the former generation, because they may contain changes
/// that the store no longer has.
public struct StoreGeneration: Sendable, Hashable {
    /// Identifies the store. A restored database and a copy keep the id. 0 if the store has never had a feed.
    public var storeID: Int64
    /// The ``FeedCursor/epoch`` of the store's feed; 0 if there is no feed.
    public var epoch: Int64

    public init(storeID: Int64, epoch: Int64) {
        self.storeID = storeID
        self.epoch = epoch
    }

    /// Parses a text.
    ///
    /// - Returns: `nil` unless the text has the form of ``text``.
    public init?(_ text: String) {
        let parts = text.split(separator: "-", omittingEmptySubsequences: false)
        guard parts.count == 2, let storeID = Int64(parts[0], radix: 16), let epoch = Int64(parts[1], radix: 16),
            storeID >= 0, epoch >= 0
        else { return nil }
        self.init(storeID: storeID, epoch: epoch)
    }

    /// ``storeID`` and ``epoch`` in hexadecimal digits, for example `1f3a-8c21`.
    public var text: String { "\(String(storeID, radix: 16))-\(String(epoch, radix: 16))" }

    /// Returns a new ``epoch``. 32 bits keep cursors short, and make it unlikely that an epoch occurs twice in a store.
    package static func random() -> Int64 { .random(in: 1...Int64(UInt32.max)) }
}

/// The renewal of a store's generation after the store has gone back in time: after `holdfast restore`, or when a
/// client presents a cursor or an epoch that the store does not have.
package struct GenerationRenewal: Sendable {
    /// The epoch to replace. If the store has another epoch, another process has renewed the generation already, and
    /// nothing changes.
    package let former: Int64
    /// The epoch that a client has presented; 0 if there is none. It is added to the list of epochs that do not belong
    /// to the current generation.
    package let presented: Int64

    /// Returns the statement that begins a new feed. Readers no longer get the rows of the former feed.
    package func statement(_ dialect: SQLDialect) -> SQLQuery {
        FeedState.setEpoch(StoreGeneration.random(), replacing: former, presented: presented, dialect)
    }
}

extension SharedChange<Void> {
    /// Gives the store a new generation, and records the renewal in the audit log; see ``GenerationRenewal``.
    ///
    /// - Parameters:
    ///   - former: the generation to replace.
    ///   - presented: the epoch that a client has presented; 0 if there is none.
    public static func renewGeneration(_ former: StoreGeneration, presented: Int64, by author: Author) -> Self {
        Self { records, _ in
            records.write(.renewGeneration(GenerationRenewal(former: former.epoch, presented: presented)))
            records.record(AuditNote(.generationRenew, of: String(former.epoch, radix: 16)), by: author)
        }
    }
}

/// Header fields by which an edge and its upstream identify themselves. A response without ``generation`` does not come
/// from Holdfast but, for example, from a proxy at the upstream's address.
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

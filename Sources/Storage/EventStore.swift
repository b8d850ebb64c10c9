public import Bucketing

/// Something that happened to a user.
public struct EventRecord: Sendable {
    public enum Kind: String, Sendable {
        /// The user was given a variation.
        case impression
        /// The user reached a goal.
        case conversion
    }

    public var kind: Kind
    public var sdkKey: String
    public var userID: Identifier
    public var receivedAt: Timestamp
    /// A JSON object.
    public var payload: [UInt8]

    public init(kind: Kind, sdkKey: String, userID: Identifier, receivedAt: Timestamp, payload: [UInt8]) {
        self.kind = kind
        self.sdkKey = sdkKey
        self.userID = userID
        self.receivedAt = receivedAt
        self.payload = payload
    }
}

/// Where events are kept, in the order of their arrival.
public protocol EventStore: Sendable {
    /// - Parameter completion: called when the events are durable or have failed, all of them or none.
    func append(_ events: [EventRecord], completion: @escaping @Sendable (Result<Void, StorageError>) -> Void)
}

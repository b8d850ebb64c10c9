public import Bucketing

/// Milliseconds since 1970-01-01T00:00:00Z.
public typealias Timestamp = Int64

/// The variation that a user has in one experiment, and where it came from.
public struct Assignment: Hashable, Sendable {
    public enum Source: UInt8, Sendable, CaseIterable {
        /// Sent by an app server.
        case saved = 1
        /// Decided by this server.
        case bucketed = 2
        /// Set by an admin; stays until an admin removes it, and never expires.
        case override = 3
    }

    public var variationID: Identifier
    public var source: Source
    /// When the user first got this variation.
    public var assignedAt: Timestamp
    /// When it was last saved.
    public var updatedAt: Timestamp
    /// The first moment at which it is gone; `nil` means never.
    public var expiresAt: Timestamp?

    public init(
        variationID: Identifier, source: Source, assignedAt: Timestamp, updatedAt: Timestamp, expiresAt: Timestamp?
    ) {
        self.variationID = variationID
        self.source = source
        self.assignedAt = assignedAt
        self.updatedAt = updatedAt
        self.expiresAt = expiresAt
    }
}

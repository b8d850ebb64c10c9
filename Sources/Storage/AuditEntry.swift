public import Bucketing
public import JSON

/// One action of an admin that changed something.
public struct AuditEntry: Sendable, Equatable {
    /// Greater is later.
    public var id: Int64
    public var recordedAt: Timestamp
    public var author: Author
    /// An ``AuditAction``, or that of a newer release.
    public var action: String
    /// `nil` when it is not about a user, or the user has been erased since.
    public var userID: Identifier?
    /// What was changed, as the action says.
    public var target: String
    /// JSON; `nil` when there was nothing, or the user has been erased since.
    public var before: [UInt8]?
    /// JSON; `nil` when there is nothing, or the user has been erased since.
    public var after: [UInt8]?

    public init(
        id: Int64, recordedAt: Timestamp, author: Author, action: String, userID: Identifier?, target: String,
        before: [UInt8]?, after: [UInt8]?
    ) {
        self.id = id
        self.recordedAt = recordedAt
        self.author = author
        self.action = action
        self.userID = userID
        self.target = target
        self.before = before
        self.after = after
    }
}

/// What an audit entry says of a change beside who made it.
public struct AuditNote: Sendable {
    public var action: AuditAction
    public var userID: Identifier?
    public var target: String
    /// `null` when there was nothing.
    public var before: JSONValue
    /// `null` when there is nothing.
    public var after: JSONValue

    public init(
        _ action: AuditAction, of target: String, userID: Identifier? = nil, before: JSONValue = .null,
        after: JSONValue = .null
    ) {
        self.action = action
        self.userID = userID
        self.target = target
        self.before = before
        self.after = after
    }
}

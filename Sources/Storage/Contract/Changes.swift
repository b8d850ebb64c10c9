package import Bucketing
package import Chronology

/// A change of the records of one user, or of two users in a merge. `Value` is the type of its result. The static
/// functions create all changes, for example ``UserChange/attributes(_:)``; most are in `UserChanges.swift`.
///
/// A change is a rule: a pure function that receives the users' records and requests writes (``UserRecords``). The
/// store reads the records, calls the rule, and performs the writes in one transaction.
public struct UserChange<Value: Sendable>: Sendable {
    /// Changes the records, which are in the order of ``userIDs``, and adds to the tallies of experiments what must
    /// change.
    ///
    /// - Returns: `nil` if the records lack a part that the rule needs; nothing has changed then. The store reads the
    ///   part and calls the rule again.
    package typealias Rule =
        @Sendable (inout [UserRecords], inout TallyChanges, RuleContext) throws(StorageError) -> Value?

    package let userIDs: [Identifier]
    /// The estimated memory that the change takes while it waits; see ``WaitingBytes``.
    package let bytes: Int
    /// Whether the change concerns only the user's attributes.
    package let concernsAttributesOnly: Bool
    package let rule: Rule

    package init(
        of userIDs: Identifier..., bytes: Int = WaitingBytes.ofChange, concernsAttributesOnly: Bool = false,
        _ rule: @escaping Rule
    ) {
        self.userIDs = userIDs
        self.bytes = bytes
        self.concernsAttributesOnly = concernsAttributesOnly
        self.rule = rule
    }
}

/// A change of data that all users share, such as projects and webhooks, or of a sticky document. `Value` is the type
/// of its result. The static functions create all changes, for example ``SharedChange/putSegment(_:by:)``; most are in
/// `SharedChanges.swift`.
///
/// Unlike a ``UserChange``, it names in advance the parts of ``SharedRecords`` that its rule needs.
public struct SharedChange<Value: Sendable>: Sendable {
    /// Requests the writes, given the parts that have been read.
    package typealias Rule = @Sendable (inout SharedRecords, RuleContext) throws(StorageError) -> Value

    /// The parts that the rule needs.
    package let parts: [SharedRecords.Part]
    /// If this user is erased while the change waits, the change fails with ``StorageError/erased``; `nil` if the
    /// change does not concern a user.
    package let userID: Identifier?
    /// The estimated memory that the change takes while it waits; see ``WaitingBytes``.
    package let bytes: Int
    package let rule: Rule

    package init(
        _ parts: SharedRecords.Part..., and others: [SharedRecords.Part] = [], userID: Identifier? = nil,
        bytes: Int = WaitingBytes.ofChange, _ rule: @escaping Rule
    ) {
        self.parts = parts + others
        self.userID = userID
        self.bytes = bytes
        self.rule = rule
    }
}

/// The values on which rules depend in addition to the records.
package struct RuleContext: Sendable {
    package let profiles: ProfileRules
    package let now: Instant

    package init(_ profiles: ProfileRules, at now: Instant) {
        self.profiles = profiles
        self.now = now
    }
}

extension StoreSession {
    /// Applies a change that is not recorded in the audit log.
    @inlinable
    public func submit(_ change: ProfileChange, _ completion: @escaping Completion<ProfileChangeResult>) {
        submit(change, by: nil, completion)
    }

    /// Makes one change; see ``write(_:_:)-([UserChange<Value>],_)``.
    public func write<Value>(_ change: UserChange<Value>, _ completion: @escaping Completion<Value>) {
        write([change]) { completion($0[0]) }
    }

    // MARK: For tasks

    /// Reads and waits for the result.
    public func read<Value>(_ query: StoreQuery<Value>) async throws(StorageError) -> Value {
        try await completed { read(query, $0) }
    }

    /// Makes a change and waits for its result.
    public func write<Value>(_ change: UserChange<Value>) async throws(StorageError) -> Value {
        try await completed { write(change, $0) }
    }

    /// Makes a change and waits for its result.
    public func write<Value>(_ change: SharedChange<Value>) async throws(StorageError) -> Value {
        try await completed { write(change, $0) }
    }
}

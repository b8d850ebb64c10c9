package import Bucketing
package import Chronology

/// A change of the records of one user, or of two users in a merge. `Value` is the type of the result. The static
/// functions create all changes, for example ``UserChange/attributes(_:)``; most are in `UserChanges.swift`.
///
/// The core of a change is its ``rule``: a pure function that receives the users' records and requests writes
/// (``UserRecords``). The store reads the records, calls the rule, and performs the writes in one transaction.
public struct UserChange<Value: Sendable>: Sendable {
    /// Requests writes of the users' records, which are in the order of ``userIDs``, and changes of the tallies of
    /// experiments.
    ///
    /// - Returns: the result of the change; `nil` if the records lack a part that the rule needs. Nothing has changed
    ///   then: the store reads the part and calls the rule again.
    package typealias Rule =
        @Sendable (inout [UserRecords], inout TallyChanges, RuleContext) throws(StorageError) -> Value?

    /// The user; in a merge the account, and then the anonymous user.
    package let userIDs: [Identifier]
    /// The estimated memory of the waiting change in bytes; see ``WaitingBytes``.
    package let bytes: Int
    /// Whether the change affects the user's attributes and nothing else.
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
/// of the result. The static functions create all changes, for example ``SharedChange/putSegment(_:by:)``; most are in
/// `SharedChanges.swift`.
///
/// Unlike a ``UserChange``, a shared change names in advance the ``parts`` of ``SharedRecords`` that its rule needs, so
/// the store calls the rule once.
public struct SharedChange<Value: Sendable>: Sendable {
    /// Requests the writes, given the parts that have been read, and returns the result.
    package typealias Rule = @Sendable (inout SharedRecords, RuleContext) throws(StorageError) -> Value

    /// The parts that the rule needs.
    package let parts: [SharedRecords.Part]
    /// The user whose data the change concerns; `nil` if there is none. If this user is erased while the change waits,
    /// the change fails with ``StorageError/erased``.
    package let userID: Identifier?
    /// The estimated memory of the waiting change in bytes; see ``WaitingBytes``.
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
    /// The rules of profile changes in this store.
    package let profiles: ProfileRules
    /// The time of the transaction, by the store's clock.
    package let now: Instant

    package init(_ profiles: ProfileRules, at now: Instant) {
        self.profiles = profiles
        self.now = now
    }
}

// MARK: Changes that an edge accepts

/// The kinds of shared changes that an edge accepts, although its store is a copy: they record facts and decide
/// nothing. See ``SharedChange/note``.
package enum SharedNote: Sendable {
    /// The last uses of flags. The edge passes them on to the upstream.
    case uses([LastUse])
    /// Entries of the audit log about this process. The edge stores them itself.
    case ownAudit
}

extension SharedChange {
    /// The facts that the change records; `nil` for a change that an edge does not accept.
    ///
    /// A change is opaque, so its rule is run on empty records to learn which writes it requests. Only a change that
    /// needs no records can be accepted, because any other rule would depend on them.
    package var note: SharedNote? {
        guard parts.isEmpty else { return nil }
        var records = SharedRecords()
        guard (try? rule(&records, RuleContext(ProfileRules(), at: .epoch))) != nil else { return nil }
        var uses: [LastUse] = []
        var isOnlyAudit = !records.writes.isEmpty
        for write in records.writes {
            switch write {
            case .recordAudit: break
            case .putLastUses(let noted):
                uses += noted
                isOnlyAudit = false
            default: isOnlyAudit = false
            }
        }
        if isOnlyAudit { return .ownAudit }
        return uses.isEmpty ? nil : .uses(uses)
    }
}

// MARK: Sessions

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

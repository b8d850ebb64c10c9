package import Bucketing
package import Chronology
package import JSON

/// A change of one user's records, or of two users', with the type of its result. The static functions make all there
/// are.
public struct UserChange<Value: Sendable>: Sendable {
    /// Decides what becomes of the records, which are in the order of ``userIDs``.
    ///
    /// - Returns: `nil` if the records lack something; nothing has changed then.
    package typealias Rule =
        @Sendable (inout [UserRecords], inout TallyChanges, RuleContext) throws(StorageError) -> Value?

    package let userIDs: [Identifier]
    /// The memory that the change takes while it waits, estimated.
    package let bytes: Int
    /// Whether nothing but the attributes changes.
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

/// A change of what all users share, or of a sticky document, with the type of its result. The static functions make all
/// there are.
public struct SharedChange<Value: Sendable>: Sendable {
    /// Decides what becomes of the records.
    package typealias Rule = @Sendable (inout SharedRecords, RuleContext) throws(StorageError) -> Value

    /// What the rule needs.
    package let parts: [SharedRecords.Part]
    /// The user whose erasure, while the change waits, makes it fail.
    package let userID: Identifier?
    /// The memory that the change takes while it waits, estimated.
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

/// What rules depend on beside records.
package struct RuleContext: Sendable {
    package let profiles: ProfileRules
    package let now: Instant

    package init(_ profiles: ProfileRules, at now: Instant) {
        self.profiles = profiles
        self.now = now
    }
}

/// What a store has read of the data that all users share, and what a rule wants written, in the same transaction.
package struct SharedRecords {
    /// What a rule may need: about one query of a database.
    package enum Part: Sendable, Equatable {
        /// All projects, and the version of the newest datafile.
        case projects
        /// The active datafile of a project, without its content.
        case activeDatafile(sdkKey: String)
        /// The last allocation period and the last status of some experiments in a project. A store may read those of others,
        /// too.
        case latestPeriods(sdkKey: String, experimentIDs: Set<Identifier>)
        /// The series of all experiments, the number of the newest one, and since when events are kept.
        case series
        /// A definition, and the number of the newest one.
        case attribute(Identifier)
        case segment(Identifier)
        /// Everything that is tallied of an experiment, at one moment.
        case tallies(experimentID: Identifier)
        /// - Parameter isChanged: whether the document may be created or changed.
        case stickyDocument(StickyDocumentKey, isChanged: Bool)
        /// Without its body.
        case proposal(id: String)
        case look(sdkKey: String, experimentID: Identifier)
        case finding(sdkKey: String, experimentID: Identifier)
        /// A webhook, and the number of the last entry of the audit log.
        case webhook(key: String)
    }

    package enum Write: Sendable {
        /// Stores a project. If it is the default, no other is any longer.
        case putProject(ProjectRecord)
        /// Deletes a project, its datafiles, forced variations, last uses, proposals and looks.
        case deleteProject(sdkKey: String)
        /// Stores a datafile, and deletes those of its project that are not kept any longer: older than the settings say,
        /// and not the last one of ``Author/processUser``, with which the next start compares the option `--datafile`.
        ///
        /// The body is what is written: a change of the former datafile, if that is in parts.
        case insertDatafile(StoredDatafile, StoredDatafile.Body)
        case insertPeriods([AllocationPeriod.OfExperiment])
        case insertStatuses([StatusPeriod.OfExperiment])
        case insertFrozenResults([FrozenRow])
        /// Stores a series in place of the one with its number.
        case putSeries(TrackedSeries)
        /// Deletes the sums of a series over users. If its users' totals are deleted, the series of this number is deleted,
        /// too.
        case deleteSums(SeriesSums, andSeries: Int64?)
        /// Sets the number of the newest series, which is the version of all: users' changes that depend on another
        /// version are refused.
        case renumberSeries(Int64)
        case insertAttribute(AttributeDefinition)
        case updateAttribute(AttributeDefinition)
        /// Deletes a definition; its values are deleted in the background.
        case deleteAttribute(AttributeDefinition)
        case putSegment(Segment)
        case deleteSegment(Identifier)
        case putStickyDocument(StickyDocument)
        case deleteStickyDocument(StickyDocumentKey)
        case putLastUses([LastUse])
        /// Stores a proposal, and deletes the oldest ones of its project beyond ``Proposal/limit``.
        case insertProposal(Proposal)
        /// Changes the decision of a proposal.
        case updateProposal(Proposal)
        case putLook(StoredLook)
        case putFinding(StoredLook)
        case putWebhook(Webhook)
        case updateWebhook(key: String, Webhook.State)
        case deleteWebhook(key: String)
        case renewGeneration(GenerationRenewal)
        case recordAudit(AuditNote, Author)

        /// Whether ``StoreQuery/projects(ifChangedSince:datafilesAfter:)`` reports it.
        package var changesProjects: Bool {
            switch self {
            case .putStickyDocument, .deleteStickyDocument, .recordAudit, .putSeries, .deleteSums, .renumberSeries,
                .putLastUses, .insertProposal, .updateProposal, .putLook, .putFinding, .putWebhook, .updateWebhook,
                .deleteWebhook:
                false
            default: true
            }
        }
    }

    package var projects: [ProjectRecord] = []
    /// 0 if there was no datafile.
    package var newestDatafile: Int64 = 0
    package var activeDatafile: StoredDatafile?
    package var latestPeriods: [Identifier: AllocationPeriod] = [:]
    package var latestStatuses: [Identifier: StatusPeriod] = [:]
    package var tallies: [Identifier: TallySnapshot] = [:]
    package var series: [TrackedSeries] = []
    /// 0 if there was no series.
    package var newestSeries: Int64 = 0
    /// Events that were received before this time have been deleted; ``Instant/epoch`` if none were.
    package var eventsSince = Instant.epoch
    /// Those that were asked for.
    package var attributes: [Identifier: AttributeDefinition] = [:]
    /// 0 if there was no attribute.
    package var newestAttribute: Int64 = 0
    /// The conditions of those that were asked for.
    package var segments: [Identifier: JSONValue] = [:]
    /// The assignments as they are stored.
    package var stickyDocument: String?
    package var proposal: Proposal?
    package var look: StoredLook?
    package var finding: StoredLook?
    /// Those that were asked for.
    package var webhooks: [String: Webhook] = [:]
    package var lastAuditEntry: Int64 = 0
    /// The writes of the rule that was applied, in order.
    package private(set) var writes: [Write] = []

    package init() {}

    mutating func write(_ write: Write) {
        writes.append(write)
    }

    mutating func record(_ note: AuditNote, by author: Author) {
        write(.recordAudit(note, author))
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

package import Bucketing
package import Chronology
package import JSON

/// The data shared by all users that a store has read for a ``SharedChange``, and the writes that the change's rule
/// requests. The store reads and writes in the same transaction. The counterpart for data of one user is
/// ``UserRecords``.
package struct SharedRecords {
    /// A part that a rule may need, about as much as one query reads.
    package enum Part: Sendable, Equatable {
        /// All projects, and the version of the newest datafile.
        case projects
        /// The active datafile of a project, without its content.
        case activeDatafile(sdkKey: String)
        /// The last allocation period and the last status of some experiments in a project. A store may also read those
        /// of other experiments.
        case latestPeriods(sdkKey: String, experimentIDs: Set<Identifier>)
        /// The tracked series of all experiments, the number of the newest series, and the time since which events are
        /// kept.
        case series
        /// The definition of an attribute, and the number of the newest attribute.
        case attribute(Identifier)
        case segment(Identifier)
        /// All tallies of an experiment, from one snapshot.
        case tallies(experimentID: Identifier)
        /// - Parameter isChanged: whether the document may be created or changed.
        case stickyDocument(StickyDocumentKey, isChanged: Bool)
        /// A proposal, without its body.
        case proposal(id: String)
        /// The last look of a bandit.
        case look(sdkKey: String, experimentID: Identifier)
        /// The last findings of the experiment monitor.
        case finding(sdkKey: String, experimentID: Identifier)
        /// A webhook, and the number of the last entry of the audit log.
        case webhook(key: String)
    }

    /// A write that a rule requests.
    package enum Write: Sendable {
        /// Stores a project. If it is the default, the former default no longer is.
        case putProject(ProjectRecord)
        /// Deletes a project, its datafiles, forced variations, last uses, proposals and looks.
        case deleteProject(sdkKey: String)
        /// Stores a datafile, and deletes the oldest datafiles of its project beyond ``StoreSettings/datafileHistory``.
        /// The last datafile of ``Author/processUser`` is kept, because the next start compares the option `--datafile`
        /// with it.
        ///
        /// The body is the form that is written: the difference to the former datafile if that is smaller, or else the
        /// whole.
        case insertDatafile(StoredDatafile, StoredDatafile.Body)
        case insertPeriods([AllocationPeriod.OfExperiment])
        case insertStatuses([StatusPeriod.OfExperiment])
        case insertFrozenResults([FrozenRow])
        /// Inserts a series, or replaces the series with the same number.
        case putSeries(TrackedSeries)
        /// Deletes the tallies of a series. Once the totals of all users are deleted as well, `andSeries` is the number
        /// of the series, which is then deleted itself.
        case deleteSums(SeriesSums, andSeries: Int64?)
        /// Sets the number of the newest series. It is also the version of all series together: a change of a user that
        /// was computed with another version is refused.
        case renumberSeries(Int64)
        case insertAttribute(AttributeDefinition)
        case updateAttribute(AttributeDefinition)
        /// Deletes the definition of an attribute. Its values are deleted in the background.
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

        /// Whether the write changes the state that
        /// ``StoreQuery/projects(ifChangedSince:datafilesAfter:elementsAfter:)`` reads.
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
    /// The requested attributes that exist.
    package var attributes: [Identifier: AttributeDefinition] = [:]
    /// 0 if there was no attribute.
    package var newestAttribute: Int64 = 0
    /// The conditions of the requested segments that exist.
    package var segments: [Identifier: JSONValue] = [:]
    /// The stored assignments of the requested document, as JSON.
    package var stickyDocument: String?
    package var proposal: Proposal?
    package var look: StoredLook?
    package var finding: StoredLook?
    /// The requested webhooks that exist.
    package var webhooks: [String: Webhook] = [:]
    package var lastAuditEntry: Int64 = 0
    /// The requested writes, in order.
    package private(set) var writes: [Write] = []

    package init() {}

    mutating func write(_ write: Write) {
        writes.append(write)
    }

    mutating func record(_ note: AuditNote, by author: Author) {
        write(.recordAudit(note, author))
    }
}

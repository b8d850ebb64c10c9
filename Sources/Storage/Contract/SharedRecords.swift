package import Bucketing
package import Chronology
package import JSON

/// The data that a store has read for a ``SharedChange``, and the writes that the rule of the change requests. The
/// store reads and writes in the same transaction. ``UserRecords`` is the counterpart for the data of one user.
package struct SharedRecords {
    /// A part that a rule may need, about as much as one query reads.
    package enum Part: Sendable, Equatable {
        /// All projects, and the version of the newest datafile.
        case projects
        /// The active datafile of a project, without its content.
        case activeDatafile(sdkKey: String)
        /// The last allocation period and the last status period of experiments in a project. A store may read further
        /// experiments as well.
        case latestPeriods(sdkKey: String, experimentIDs: Set<Identifier>)
        /// The tracked series of all experiments, the number of the newest series, and the time since which events are
        /// kept.
        case series
        /// The definition of an attribute, and the number of the newest attribute.
        case attribute(Identifier)
        case segment(Identifier)
        /// All tallies of an experiment, from one snapshot.
        case tallies(experimentID: Identifier)
        /// A sticky document. `isChanged` is whether the change may create or change the document; otherwise it may
        /// only delete it.
        case stickyDocument(StickyDocumentKey, isChanged: Bool)
        /// A proposal, without its body.
        case proposal(id: String)
        /// The last look of a bandit at an experiment; see ``StoredLook``.
        case look(sdkKey: String, experimentID: Identifier)
        /// The last findings of the experiment monitor in an experiment; see ``StoredLook``.
        case finding(sdkKey: String, experimentID: Identifier)
        /// A webhook, and the number of the last entry of the audit log.
        case webhook(key: String)
    }

    /// A write that a rule requests.
    package enum Write: Sendable {
        /// Stores a project. If the project is the default, the former default project loses this role.
        case putProject(ProjectRecord)
        /// Deletes a project and all rows of ``StoredTable/ofProject`` with its SDK key.
        case deleteProject(sdkKey: String)
        /// Stores a datafile, and deletes the oldest datafiles of its project beyond ``StoreSettings/datafileHistory``.
        /// The last datafile of ``Author/processUser`` stays, because the next start compares the option `--datafile`
        /// with this datafile.
        ///
        /// The body is the form in which the elements are written: the difference to the former datafile if the
        /// difference is smaller, or else the whole datafile.
        case insertDatafile(StoredDatafile, StoredDatafile.Body)
        case insertPeriods([AllocationPeriod.OfExperiment])
        case insertStatuses([StatusPeriod.OfExperiment])
        case insertFrozenResults([FrozenRow])
        /// Inserts a series, or replaces the series with the same number.
        case putSeries(TrackedSeries)
        /// Deletes the tallies of a series. If `andSeries` is the number of the series, the series is deleted as well.
        /// `andSeries` is `nil` as long as users still have totals of the series.
        case deleteSums(SeriesSums, andSeries: Int64?)
        /// Sets the number of the newest series. The number is also the version of all series: a change of a user is
        /// refused if it was computed with another version.
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
        /// Stores a proposal, and deletes the oldest proposals of its project beyond ``Proposal/limit``.
        case insertProposal(Proposal)
        /// Stores the decision of a proposal.
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

    /// All projects.
    package var projects: [ProjectRecord] = []
    /// The version of the newest datafile of all projects; 0 if there was no datafile.
    package var newestDatafile: Int64 = 0
    /// The active datafile of the requested project, without its content; `nil` if there is none.
    package var activeDatafile: StoredDatafile?
    /// The last allocation period of each requested experiment that has one.
    package var latestPeriods: [Identifier: AllocationPeriod] = [:]
    /// The last status period of each requested experiment that has one.
    package var latestStatuses: [Identifier: StatusPeriod] = [:]
    /// The tallies of each requested experiment that has any.
    package var tallies: [Identifier: TallySnapshot] = [:]
    /// The tracked series of all experiments.
    package var series: [TrackedSeries] = []
    /// The number of the newest series; 0 if there was no series.
    package var newestSeries: Int64 = 0
    /// Events that were received before this time have been deleted; ``Instant/epoch`` if none were.
    package var eventsSince = Instant.epoch
    /// The requested attributes that exist.
    package var attributes: [Identifier: AttributeDefinition] = [:]
    /// The number of the newest attribute; 0 if there was no attribute.
    package var newestAttribute: Int64 = 0
    /// The conditions of the requested segments that exist.
    package var segments: [Identifier: JSONValue] = [:]
    /// The stored assignments of the requested document, as JSON; `nil` if there is none.
    package var stickyDocument: String?
    /// The requested proposal without its body; `nil` if there is none.
    package var proposal: Proposal?
    /// The requested look of a bandit; `nil` if there is none.
    package var look: StoredLook?
    /// The requested findings of the monitor; `nil` if there are none.
    package var finding: StoredLook?
    /// The requested webhooks that exist.
    package var webhooks: [String: Webhook] = [:]
    /// The greatest id of an audit entry; 0 if there is none.
    package var lastAuditEntry: Int64 = 0
    /// The requested writes, in order.
    package private(set) var writes: [Write] = []

    package init() {}

    /// Requests a write.
    mutating func write(_ write: Write) {
        writes.append(write)
    }

    /// Requests an entry of the audit log.
    mutating func record(_ note: AuditNote, by author: Author) {
        write(.recordAudit(note, author))
    }
}

public import Bucketing
public import Chronology
public import JSON

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#elseif canImport(Darwin)
    import Darwin
#endif

/// The author of a change, and the request that made the change.
public struct Author: Sendable, Hashable {
    /// The name of a token, or of another actor such as `user root`. Names of other actors have two words, so that no
    /// token can have such a name.
    public var name: String
    /// The id of the request; empty if there was none.
    public var requestID: String

    public init(name: String, requestID: String = "") {
        self.name = name
        self.requestID = requestID
    }

    /// The name of all callers of a server without tokens. No token may have this name.
    public static let anonymousName = "anonymous"

    /// The system user that runs this process: the author of changes at the start of a server, and of changes by
    /// commands.
    public static let processUser: Author = {
        let identifier = geteuid()
        let name = getpwuid(identifier).map { String(cString: $0.pointee.pw_name) }
        return Author(name: "user \(name ?? String(identifier))")
    }()
}

/// An action of an admin. The raw value is the name in the audit log.
public enum AuditAction: String, Sendable, CaseIterable {
    /// An override was set for a user, or imported; the target is the experiment's id.
    case overrideSet = "override.set"
    /// A user's override was removed, or the assignment if there was no override; the target is the experiment's id.
    case assignmentRemove = "assignment.remove"
    /// Everything stored about a user was erased. The entry does not name the user.
    case profileErase = "profile.erase"
    /// An anonymous user was merged into an account; the entry is about the account.
    case profileMerge = "profile.merge"
    /// A variation was forced on a user for a test; the target is the experiment's key.
    case forcedVariationSet = "forced_variation.set"
    /// A forced variation was removed; the target is the experiment's key.
    case forcedVariationRemove = "forced_variation.remove"
    /// A datafile was activated; the target is the SDK key.
    case datafilePut = "datafile.put"
    /// An experiment was created or changed; the target is its key.
    case experimentPut = "experiment.put"
    /// An experiment was archived; the target is its key.
    case experimentArchive = "experiment.archive"
    /// An experiment was concluded; the target is its key.
    case experimentConclude = "experiment.conclude"
    /// A concluded experiment was reopened; the target is its key.
    case experimentReopen = "experiment.reopen"
    /// Results of an experiment were imported from another system.
    case experimentImport = "experiment.import"
    /// A ramp began a step, ended, or was controlled by hand; the target is the experiment's key.
    case experimentRamp = "experiment.ramp"
    /// A bandit looked at the users of an experiment, and may have changed the weights; the target is the experiment's
    /// key.
    case experimentBandit = "experiment.bandit"
    /// A schedule started an experiment, or closed its enrollment; the target is its key.
    case experimentSchedule = "experiment.schedule"
    /// An experiment was deleted, by an earlier release; the target is its key.
    case experimentDelete = "experiment.delete"
    /// A flag was created or changed; the target is its key.
    case flagPut = "flag.put"
    /// A flag was deleted, and its experiments archived; the target is its key.
    case flagDelete = "flag.delete"
    /// A metric was created or changed; the target is its key.
    case metricPut = "metric.put"
    /// A metric was deleted; the target is its key.
    case metricDelete = "metric.delete"
    /// A holdout was created or changed; the target is its key.
    case holdoutPut = "holdout.put"
    /// A holdout was deleted; the target is its key.
    case holdoutDelete = "holdout.delete"
    /// An attribute was defined, or the values of a selection were changed; the target is its name.
    case attributePut = "attribute.put"
    /// An attribute was deleted with all its values; the target is its name.
    case attributeDelete = "attribute.delete"
    /// A segment was defined or its conditions were changed; the target is its name.
    case segmentPut = "segment.put"
    /// A segment was deleted; the target is its name.
    case segmentDelete = "segment.delete"
    /// The sticky document of a value was deleted; the target is the attribute's name.
    case stickyDelete = "sticky.delete"
    /// A project was made, named, or made the default; the target is its SDK key.
    case projectPut = "project.put"
    /// A project was deleted; the target is its SDK key.
    case projectDelete = "project.delete"
    /// A change of running experiments was proposed; the target is the id of the proposal.
    case proposalPut = "proposal.put"
    /// A proposed change was approved and made; the target is the id of the proposal.
    case proposalApprove = "proposal.approve"
    /// A proposed change was rejected; the target is the id of the proposal.
    case proposalReject = "proposal.reject"
    /// The verdict of an experiment has changed; the target is the experiment's key.
    case experimentVerdict = "experiment.verdict"
    /// The warnings of an experiment have changed, such as a broken split or a worse guardrail; the target is its key.
    case experimentWarning = "experiment.warning"
    /// A webhook was made or changed; the target is its key.
    case webhookPut = "webhook.put"
    /// A webhook was deleted; the target is its key.
    case webhookDelete = "webhook.delete"
    /// A webhook got another secret; the target is its key.
    case webhookRotate = "webhook.rotate"
    /// A webhook was paused, because its receiver has not accepted an event for too long; the target is its key.
    case webhookPause = "webhook.pause"
    /// The access tokens were reloaded; the target is their file.
    case tokensReload = "tokens.reload"
    /// The database was migrated; the target is its new version.
    case databaseMigrate = "database.migrate"
    /// The database was found to have gone back in time, and got a new generation; the target is the former generation.
    case generationRenew = "generation.renew"
}

/// A recorded action of an admin, written in the same transaction as its change. Actions that change nothing are not
/// recorded.
public struct AuditEntry: Sendable, Equatable {
    /// Increases with each entry.
    public var id: Int64
    public var recordedAt: Instant
    public var author: Author
    /// An ``AuditAction``, or an action of a newer release.
    public var action: String
    /// `nil` if the action is not about a user, or if the user has been erased since.
    public var userID: Identifier?
    /// The changed object; see ``AuditAction``.
    public var target: String
    /// The object before the change, as JSON; `nil` if there was none, or if the user has been erased since.
    public var before: [UInt8]?
    /// The object after the change, as JSON; `nil` if there is none, or if the user has been erased since.
    public var after: [UInt8]?
    /// The project that the action concerns; `nil` if it concerns none, or all of them.
    public var sdkKey: String?

    public init(
        id: Int64, recordedAt: Instant, author: Author, action: String, userID: Identifier?, target: String,
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

/// The description of a change for the audit log, without its author and time. The store makes an ``AuditEntry`` of it.
public struct AuditNote: Sendable {
    public var action: AuditAction
    /// `nil` if the action is not about a user.
    public var userID: Identifier?
    /// The changed object; see ``AuditAction``.
    public var target: String
    /// The object before the change; `null` if there was none.
    public var before: JSONValue
    /// The object after the change; `null` if there is none.
    public var after: JSONValue
    /// The project that the action concerns; `nil` if it concerns none, or all of them.
    public var sdkKey: String?

    public init(
        _ action: AuditAction, of target: String, userID: Identifier? = nil, before: JSONValue = .null,
        after: JSONValue = .null, in sdkKey: String? = nil
    ) {
        self.action = action
        self.userID = userID
        self.target = target
        self.before = before
        self.after = after
        self.sdkKey = sdkKey
    }
}

/// A query of the audit log. An entry must meet all members that are not `nil`.
public struct AuditQuery: Sendable {
    public var author: String?
    public var action: AuditAction?
    public var userID: Identifier?
    public var target: String?
    /// Finds entries recorded at this time or later.
    public var since: Instant?
    /// Finds entries recorded before this time.
    public var until: Instant?
    /// The id of the last entry of the preceding page. Finds older entries, because pages begin with the newest entry.
    public var after: Int64?
    /// The maximum number of entries.
    public var limit: Int

    public init(limit: Int) {
        self.limit = limit
    }
}

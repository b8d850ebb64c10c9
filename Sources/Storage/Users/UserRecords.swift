public import Bucketing
public import Chronology

/// The records of one user that a store has read, and the writes that a rule requests.
///
/// Rules are pure: they work on records in memory. A rule and the store take turns:
///
/// 1. The rule checks with ``has(_:)`` whether the parts that it needs have been read. If some have not, the rule ends
///    before it changes anything, and reports that it lacks records.
/// 2. The store reads the parts that ``takeMissing()`` returns, and calls the rule again. A store behind a network can
///    read the missing parts of many users in one round trip.
/// 3. Once the rule returns a result, the store performs the ``writes`` in order, in the same transaction.
public struct UserRecords: Sendable {
    /// A part of the records of a user, about as much as one query reads.
    public enum Part: Hashable, Sendable {
        case profile
        /// The numbers of the user's goal events and audit entries; see ``OtherRecords``.
        case otherRecords
        /// The sticky documents of attributes whose value is this user's id.
        case stickyDocuments
        case attributes
        /// The names and numbers of all attributes in the schema.
        case definedAttributes
        case forcedVariations
        /// The exposures to all experiments.
        case exposures
        /// The exposure to one experiment.
        case exposure(experimentID: Identifier)
        /// The user's totals of all goals in one experiment.
        case totals(experimentID: Identifier)
        /// The user's totals with these keys.
        case someTotals([TotalKey])
        /// The user's goal events that happened at this time or later.
        case goalEvents(since: Instant)
        /// Whether a goal event of the user with this sender's id is stored.
        case goalEvent(senderID: Identifier)
        /// The allocation periods of an experiment, which all users share.
        case periods(experimentID: Identifier)
        /// The history of an experiment's status, which all users share.
        case statuses(experimentID: Identifier)
        /// The version of the newest datafile of all projects.
        case newestDatafile
        /// The erasures and merges of the user at this time or later.
        case removals(since: Instant)
        /// The tracked series of experiments, which all users share. Dropped series are left out.
        case series(experimentIDs: [Identifier])
    }

    /// The parts that together are all records of a user, except for the content of goal events and audit entries.
    public static let everything: [Part] = [
        .profile, .attributes, .forcedVariations, .exposures, .otherRecords, .stickyDocuments,
    ]

    /// A write that a rule requests.
    public enum Write: Sendable {
        /// Stores a profile. `replacing` is the stored profile; `nil` if there is none.
        case putProfile(ProfileRecord, replacing: ProfileRecord?)
        /// Fails the transaction unless the datafile with this version is still the newest at the commit.
        case expectNewestDatafile(Int64)
        /// Deletes the profile. `replacing` is the stored profile, without assignments if it is damaged.
        case deleteProfile(replacing: ProfileRecord?)
        case putForcedVariation(ForcedVariation)
        case deleteForcedVariation(ForcedVariation)
        /// Stores an exposure under a new number. It replaces the user's exposure to the same experiment.
        case putExposure(StoredExposure)
        case putTotal(UserGoal, TotalKey)
        /// Deletes the user's totals of all goals in an experiment.
        case deleteTotals(experimentID: Identifier)
        case insertGoalEvent(GoalEvent)
        /// Stores an allocation period, unless there is one with its number.
        case putPeriod(AllocationPeriod, experimentID: Identifier)
        /// Stores a breakdown with a new value, which concerns all users, and raises the version of all series; see
        /// ``SharedRecords/Write/renumberSeries(_:)``.
        case putSeries(TrackedSeries)
        /// - Parameter changed: the numbers of the attributes that differ from the stored ones.
        case putAttributes(AttributeRecord, changed: [UInt32])
        /// Moves the goal events and audit entries of another user to this user. The events keep their numbers. An
        /// event is deleted instead if an event of this user has the same sender's id.
        case takeOver(Identifier)
        /// Deletes everything about the user except the profile, and anonymizes the audit entries that name the user.
        case eraseOtherRecords
        /// Deletes the sticky documents of attributes that have this user's id as their value.
        case eraseStickyDocuments
        /// Records that the user was merged into an account, or with `nil` that the user was erased; see
        /// ``ErasureRules``. The id of an erased user is also removed from the audit entries of merges.
        case noteRemoval(into: Identifier?)
        case recordAudit(AuditNote, Author)
    }

    public let userID: Identifier
    /// The profile, including expired assignments.
    public var profile = Stored<ProfileRecord>.absent
    /// The attributes of the user.
    public var attributes = Stored<AttributeRecord>.absent
    /// The names of the attributes in the schema, by their numbers.
    public var definedAttributes: [UInt32: Identifier] = [:]
    /// The numbers of the user's goal events and audit entries.
    public var otherRecords = OtherRecords()
    /// The sticky documents of attributes whose value is this user's id.
    public var stickyDocuments: [StickyContent] = []
    /// The variations that are forced on the user, in all projects.
    public var forcedVariations: [ForcedVariation] = []
    /// The exposures, at most one per experiment.
    public var exposures: [StoredExposure] = []
    /// The requested totals of the user that exist.
    public var totals: [TotalKey: UserGoal] = [:]
    /// The user's goal events since the requested time, in any order.
    public var goalEvents: [GoalValue] = []
    /// The requested sender's ids that stored goal events of the user have.
    public var senderIDs: Set<Identifier> = []
    /// The allocation periods of one experiment, in any order.
    public var periods: [AllocationPeriod] = []
    /// The history of one experiment's status, in any order.
    public var statuses: [StatusPeriod] = []
    /// The version of the newest datafile of all projects; 0 if there is none.
    public var newestDatafile: Int64 = 0
    /// The tracked series of the requested experiments, without dropped ones.
    public var series: [TrackedSeries] = []
    /// The requested erasures and merges of the user, and perhaps earlier ones.
    public var removals: [RemovedUser] = []

    /// The writes that the rule has requested, in order.
    public private(set) var writes: [Write] = []
    /// The parts that have been read, or that the store is reading.
    private var readParts: [Part] = []
    /// The parts that the rule needs and that have not been read.
    private var missing: [Part] = []

    public init(userID: Identifier) {
        self.userID = userID
    }

    /// Returns the parts that the rule lacked, and marks them as read.
    public mutating func takeMissing() -> [Part] {
        defer { missing = [] }
        readParts += missing
        return missing
    }

    /// Empties a part that consists of several rows. Called before the rows are read, because each row is added.
    package mutating func begin(_ part: Part) {
        switch part {
        case .otherRecords: otherRecords = OtherRecords()
        case .stickyDocuments: stickyDocuments = []
        case .forcedVariations: forcedVariations = []
        case .exposures: exposures = []
        case .goalEvents: goalEvents = []
        case .removals: removals = []
        default: break
        }
    }

    /// Copies a part from records of the same user in which the part has been read.
    package mutating func copy(_ part: Part, from other: UserRecords) {
        switch part {
        case .profile: profile = other.profile
        case .attributes: attributes = other.attributes
        case .definedAttributes: definedAttributes = other.definedAttributes
        case .otherRecords: otherRecords = other.otherRecords
        case .stickyDocuments: stickyDocuments = other.stickyDocuments
        case .forcedVariations: forcedVariations = other.forcedVariations
        case .exposures: exposures = other.exposures
        case .exposure(let experimentID):
            exposures = other.exposures.filter { $0.exposure.experimentID == experimentID }
        case .totals(let experimentID):
            for (key, total) in other.totals where key.experimentID == experimentID { totals[key] = total }
        case .someTotals(let keys): for key in keys { totals[key] = other.totals[key] }
        case .goalEvents(let since): goalEvents = other.goalEvents.filter { $0.happenedAt >= since }
        case .goalEvent(let senderID): if other.senderIDs.contains(senderID) { senderIDs.insert(senderID) }
        case .periods: periods = other.periods
        case .statuses: statuses = other.statuses
        case .newestDatafile: newestDatafile = other.newestDatafile
        case .series: series = other.series
        case .removals: removals = other.removals
        }
    }

    // MARK: For rules

    /// Whether these parts have been read. A part that has not been read becomes missing.
    ///
    /// - Returns: `false` also if a part is missing from an earlier call. The store reads all missing parts at once.
    mutating func has(_ parts: [Part]) -> Bool {
        for part in parts where !readParts.contains(part) && !missing.contains(part) { missing.append(part) }
        return missing.isEmpty
    }

    /// Requests a write.
    mutating func write(_ write: Write) {
        writes.append(write)
    }

    /// Requests that a new allocation period is stored, and adds it to ``periods``.
    mutating func add(_ period: AllocationPeriod, of experimentID: Identifier) {
        write(.putPeriod(period, experimentID: experimentID))
        periods.append(period)
    }

    /// Requests that a changed series is stored, and replaces it in ``series``.
    mutating func put(_ changed: TrackedSeries) {
        write(.putSeries(changed))
        series = series.map { $0.number == changed.number ? changed : $0 }
    }

    /// Returns the user's exposure to an experiment; `nil` if there is none.
    func exposure(to experimentID: Identifier) -> StoredExposure? {
        exposures.first { $0.exposure.experimentID == experimentID }
    }
}

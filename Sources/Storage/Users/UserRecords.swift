public import Bucketing
public import Chronology

/// The records of one user that a store has read, and the writes that a rule requests.
///
/// Rules are pure: they work on records in memory. A rule and the store take turns:
///
/// 1. The rule checks with ``has(_:)`` that the parts that it needs have been read. If some have not, it returns `nil`
/// before
///    it changes anything.
/// 2. The store reads the parts that ``takeMissing()`` returns, and calls the rule again. A store behind a network can
/// read
///    the missing parts of many users in one round trip.
/// 3. Once the rule returns a result, the store performs the ``writes`` in order, in the same transaction.
public struct UserRecords: Sendable {
    /// A part of the records of a user, about as much as one query reads.
    public enum Part: Hashable, Sendable {
        case profile
        /// How many goal events and audit entries the user has; see ``OtherRecords``.
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
        /// The goal events that happened at this time or later.
        case goalEvents(since: Instant)
        /// Whether a goal event with this id of its sender is stored.
        case goalEvent(senderID: Identifier)
        /// The allocation periods of an experiment, which all users share.
        case periods(experimentID: Identifier)
        /// The history of an experiment's status, which all users share.
        case statuses(experimentID: Identifier)
        /// The version of the newest datafile of all projects.
        case newestDatafile
        /// The erasures and merges of the user at this time or later.
        case removals(since: Instant)
        /// The series of experiments, which all users share, without those that were dropped.
        case series(experimentIDs: [Identifier])
    }

    /// The parts that together are all records of a user, except for the content of goal events and audit entries.
    public static let everything: [Part] = [
        .profile, .attributes, .forcedVariations, .exposures, .otherRecords, .stickyDocuments,
    ]

    /// A stored record: attributes, or a profile including expired assignments.
    public enum Stored<Record: Sendable>: Sendable {
        case absent
        case present(Record)
        /// The record cannot be decoded.
        case damaged(StorageError)

        /// Whether there is a record, even if it cannot be decoded.
        public var exists: Bool {
            if case .absent = self { false } else { true }
        }

        /// The record; `nil` if there is none.
        ///
        /// - Throws: ``StorageError/damaged(reason:)``
        public func get() throws(StorageError) -> Record? {
            switch self {
            case .absent: return nil
            case .present(let record): return record
            case .damaged(let error): throw error
            }
        }
    }

    /// How many records the user has of the kinds whose content rules do not need.
    public struct OtherRecords: Sendable, Equatable {
        public var goalEvents: Several
        public var auditEntries: Several
        /// The number of audit entries about other users that name this user, because this user was merged into them.
        public var mergesIntoOthers = 0

        public init(goalEvents: Several = Several(), auditEntries: Several = Several()) {
            self.goalEvents = goalEvents
            self.auditEntries = auditEntries
        }

        /// Whether there are neither goal events nor audit entries of the user.
        public var isEmpty: Bool { goalEvents.count == 0 && auditEntries.count == 0 }
    }

    /// How many records of one kind there are, and the greatest of their numbers. Records of these kinds never change
    /// and are numbered in ascending order, so they can be read later page by page, up to ``newest``, without later
    /// records.
    public struct Several: Sendable, Equatable {
        public var count: Int
        /// The greatest number of a record; 0 if there are none.
        public var newest: Int64

        public init(count: Int = 0, newest: Int64 = 0) {
            self.count = count
            self.newest = newest
        }
    }

    /// A sticky document as it is stored.
    public struct StickyContent: Sendable {
        public var attributeName: String
        /// The assignments as JSON.
        public var content: String

        public init(attributeName: String, content: String) {
            self.attributeName = attributeName
            self.content = content
        }
    }

    /// The key of a user's total: the experiment, and a goal or the name of a series.
    public struct TotalKey: Hashable, Sendable {
        public var experimentID: Identifier
        public var goal: Identifier

        public init(experimentID: Identifier, goal: Identifier) {
            self.experimentID = experimentID
            self.goal = goal
        }
    }

    /// The part of a goal event that results need.
    public struct GoalValue: Sendable {
        public var goal: Identifier
        public var value: Double
        public var happenedAt: Instant
        public var senderID: Identifier?

        public init(goal: Identifier, value: Double, happenedAt: Instant, senderID: Identifier?) {
            self.goal = goal
            self.value = value
            self.happenedAt = happenedAt
            self.senderID = senderID
        }
    }

    /// A write that a rule requests.
    public enum Write: Sendable {
        case putProfile(ProfileRecord, replacing: ProfileRecord?)
        /// Fails the transaction unless the datafile of this version is still the newest at the commit.
        case expectNewestDatafile(Int64)
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
        /// Stores a series with a new value of a breakdown, which concerns all users, and raises the version of all
        /// series.
        case putSeries(TrackedSeries)
        /// - Parameter changed: the numbers of the attributes that differ from the stored ones.
        case putAttributes(AttributeRecord, changed: [UInt32])
        /// Moves another user's goal events and audit entries to this user. The events keep their numbers. Events with
        /// a sender's id that an event of this user also has are deleted.
        case takeOver(Identifier)
        /// Deletes everything about the user except the profile, and anonymizes the audit entries that name the user.
        case eraseOtherRecords
        /// Deletes the sticky documents of attributes that have this user's id as their value.
        case eraseStickyDocuments
        /// Records that the user was merged into another, or with `nil` erased; see ``ErasureRules``. The id of an
        /// erased user is removed from the audit entries of merges.
        case noteRemoval(into: Identifier?)
        case recordAudit(AuditNote, Author)
    }

    public let userID: Identifier
    public var profile = Stored<ProfileRecord>.absent
    public var attributes = Stored<AttributeRecord>.absent
    /// The names of the attributes in the schema, by their numbers.
    public var definedAttributes: [UInt32: Identifier] = [:]
    public var otherRecords = OtherRecords()
    public var stickyDocuments: [StickyContent] = []
    public var forcedVariations: [ForcedVariation] = []
    /// The exposures, at most one per experiment.
    public var exposures: [StoredExposure] = []
    public var totals: [TotalKey: UserGoal] = [:]
    public var goalEvents: [GoalValue] = []
    /// Of the requested sender's ids, those that stored goal events of the user have.
    public var senderIDs: Set<Identifier> = []
    /// The allocation periods of one experiment, in any order.
    public var periods: [AllocationPeriod] = []
    /// The history of one experiment's status, in any order.
    public var statuses: [StatusPeriod] = []
    /// The version of the newest datafile of all projects; 0 if there is none.
    public var newestDatafile: Int64 = 0
    public var series: [TrackedSeries] = []
    /// The requested erasures and merges of the user, and perhaps earlier ones.
    public var removals: [RemovedUser] = []

    /// The writes of the rule that was applied, in order.
    public private(set) var writes: [Write] = []
    /// The parts that have been read.
    private var known: [Part] = []
    /// The parts that the rule needs and that have not been read.
    private var missing: [Part] = []

    public init(userID: Identifier) {
        self.userID = userID
    }

    /// Returns the parts that the rule lacked, and marks them as read.
    public mutating func takeMissing() -> [Part] {
        defer { missing = [] }
        known += missing
        return missing
    }

    /// Empties a part that consists of several rows before they are read, because each row is added to the part.
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

    /// Copies a part from records of the same user in which it is known.
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

    /// Whether these parts have been read, and all that were checked before. Parts that have not are added to the
    /// missing ones.
    mutating func has(_ parts: [Part]) -> Bool {
        for part in parts where !known.contains(part) && !missing.contains(part) { missing.append(part) }
        return missing.isEmpty
    }

    mutating func write(_ write: Write) {
        writes.append(write)
    }

    /// Stores a new allocation period.
    mutating func add(_ period: AllocationPeriod, of experimentID: Identifier) {
        write(.putPeriod(period, experimentID: experimentID))
        periods.append(period)
    }

    /// Stores a changed series.
    mutating func put(_ changed: TrackedSeries) {
        write(.putSeries(changed))
        series = series.map { $0.number == changed.number ? changed : $0 }
    }

    /// Returns the user's exposure to an experiment; `nil` if there is none.
    func exposure(to experimentID: Identifier) -> StoredExposure? {
        exposures.first { $0.exposure.experimentID == experimentID }
    }
}

extension UserRecords.Stored {
    /// - Parameter bytes: `nil` if there is no record.
    private init(_ bytes: [UInt8]?, decode: ([UInt8]) throws(StorageError) -> Record) {
        guard let bytes else {
            self = .absent
            return
        }
        do throws(StorageError) {
            self = .present(try decode(bytes))
        } catch {
            self = .damaged(error)
        }
    }
}

extension UserRecords.Stored<ProfileRecord> {
    /// Decodes the stored profile of a user.
    ///
    /// - Parameter bytes: `nil` if there is no record.
    public init(_ bytes: [UInt8]?, of userID: Identifier) {
        self.init(bytes) { bytes throws(StorageError) in try ProfileRecord(stored: bytes, of: userID) }
    }
}

extension UserRecords.Stored<AttributeRecord> {
    /// Decodes the stored attributes of a user.
    ///
    /// - Parameter bytes: `nil` if there is no record.
    public init(_ bytes: [UInt8]?, of userID: Identifier) {
        self.init(bytes) { bytes throws(StorageError) in try AttributeRecord(stored: bytes, of: userID) }
    }
}

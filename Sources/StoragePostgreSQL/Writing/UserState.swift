import Bucketing
import Storage

/// What a transaction knows of one user: the records that were read, and the records after the rules.
final class UserState {
    let userID: Identifier

    // MARK: As it was read

    /// The version of the row; `nil` if there is none.
    private(set) var version: Int64?
    private(set) var readProfile = UserRecords.Stored<ProfileRecord>.absent
    private var readAttributes: [UInt8]?
    /// Parts that have been read; `nil` if not.
    var readExposures: [StoredExposure]?
    var readForcedVariations: [ForcedVariation]?
    var readGoalEvents: (since: Timestamp, events: [UserRecords.GoalValue])?
    var readSenderIDs: [Identifier: Bool] = [:]
    var readOtherRecords: UserRecords.OtherRecords?
    var readStickyDocuments: [UserRecords.StickyContent]?
    var readRemovals: [RemovedUser]?
    var readTotals = ReadTotals()

    /// The totals that have been read: those of some keys, or all.
    struct ReadTotals {
        var isComplete = false
        var keys: Set<UserRecords.TotalKey> = []
        var found: [UserRecords.TotalKey: UserGoal] = [:]

        func has(_ key: UserRecords.TotalKey) -> Bool { isComplete || keys.contains(key) }
    }

    // MARK: After the rules

    private(set) var profile = UserRecords.Stored<ProfileRecord>.absent
    private(set) var attributes: [UInt8]?
    private(set) var profileChanged = false
    private(set) var attributesChanged = false
    /// Whether the row that was read is to be deleted, unless a later change needs it.
    private(set) var deletesRow = false
    /// Whether the user is erased, or becomes part of another: nobody may store anything about the user meanwhile.
    private(set) var isRemoved = false
    /// Whether the rows in other tables are to be deleted.
    private(set) var isErased = false
    private var exposures: [StoredExposure] = []
    private var totals: [UserRecords.TotalKey: UserGoal] = [:]
    private(set) var forcedVariations: [ForcedVariation] = []
    private var goalEvents: [UserRecords.GoalValue] = []
    private var senderIDs: [Identifier: Bool] = [:]
    private var otherRecords = UserRecords.OtherRecords()
    private var stickyDocuments: [UserRecords.StickyContent] = []
    /// The experiments whose totals are to be deleted, before ``putTotals`` are written.
    private(set) var deletedTotals: Set<Identifier> = []
    private(set) var putTotals: [UserRecords.TotalKey: UserGoal] = [:]
    private(set) var putForcedVariations: [ForcedVariation] = []
    private(set) var deletedForcedVariations: [ForcedVariation] = []
    /// What the feed says of the user; empty if there is none.
    private(set) var feed = FeedEncoder()
    private let hasFeed: Bool
    /// Whether rows in other tables change, so that the version of the user's row must protect them.
    private(set) var needsGuard = false

    init(_ userID: Identifier, hasFeed: Bool) {
        self.userID = userID
        self.hasFeed = hasFeed
    }

    /// Sets the contents of the user's row.
    func read(version: Int64?, profile: UserRecords.Stored<ProfileRecord>, attributes: [UInt8]?) {
        self.version = version
        readProfile = profile
        readAttributes = attributes
    }

    /// Discards the changes of the rules.
    func reset() {
        (profile, attributes) = (readProfile, readAttributes)
        (profileChanged, attributesChanged, needsGuard) = (false, false, false)
        (isErased, isRemoved, deletesRow) = (false, false, false)
        exposures = readExposures ?? []
        totals = readTotals.found
        forcedVariations = readForcedVariations ?? []
        goalEvents = readGoalEvents?.events ?? []
        senderIDs = readSenderIDs
        otherRecords = readOtherRecords ?? .init()
        stickyDocuments = readStickyDocuments ?? []
        (deletedTotals, putTotals, putForcedVariations, deletedForcedVariations) = ([], [:], [], [])
        feed = FeedEncoder()
    }

    var hasChanged: Bool { profileChanged || attributesChanged || needsGuard }
    /// Whether anything but the contents of the user's row changes.
    var changesOtherTables: Bool { isErased || needsGuard || deletesRow || isRemoved }
    /// Whether the user has a row after the change.
    var needsRow: Bool {
        if case .absent = profile { attributes != nil || needsGuard } else { true }
    }

    func set(_ profile: ProfileRecord?) {
        self.profile = profile.map { .present($0) } ?? .absent
        profileChanged = true
    }

    /// Stores a profile on behalf of somebody, for readers of the feed, too.
    func put(_ record: ProfileRecord, replacing stored: ProfileRecord?) {
        set(record)
        if hasFeed { feed.append(record, replacing: stored, of: userID) }
    }

    func set(_ attributes: AttributeRecord?) {
        self.attributes = attributes?.bytes
        attributesChanged = true
    }

    // MARK: For the rules

    /// Gives a rule a part of the records.
    ///
    /// - Returns: `false` if the part has not been read.
    func fill(_ part: UserRecords.Part, _ records: inout UserRecords) -> Bool {
        switch part {
        case .profile: records.profile = profile
        case .attributes: records.attributes = .init(attributes, of: userID)
        // The transaction itself provides what all users share.
        case .definedAttributes, .periods, .statuses, .newestDatafile, .series: break
        case .otherRecords:
            guard readOtherRecords != nil else { return false }
            records.otherRecords = otherRecords
        case .stickyDocuments:
            guard readStickyDocuments != nil else { return false }
            records.stickyDocuments = stickyDocuments
        case .forcedVariations:
            guard readForcedVariations != nil else { return false }
            records.forcedVariations = forcedVariations
        case .exposures:
            guard readExposures != nil else { return false }
            records.exposures = exposures
        case .exposure(let experimentID):
            guard readExposures != nil else { return false }
            records.exposures = exposures.filter { $0.exposure.experimentID == experimentID }
        case .totals(let experimentID):
            guard readTotals.isComplete else { return false }
            for (key, total) in totals where key.experimentID == experimentID { records.totals[key] = total }
        case .someTotals(let keys):
            guard keys.allSatisfy(readTotals.has) else { return false }
            for key in keys { records.totals[key] = totals[key] }
        case .goalEvents(let since):
            guard let readGoalEvents, readGoalEvents.since <= since else { return false }
            records.goalEvents = goalEvents.filter { $0.happenedAt >= since }
        case .removals:
            guard let readRemovals else { return false }
            // Of the same transaction.
            let present = RemovedUser(userHash: ErasureRules.hash(userID), removedAt: .max, account: nil)
            records.removals = readRemovals + (isRemoved ? [present] : [])
        case .goalEvent(let senderID):
            guard let isKnown = senderIDs[senderID] else { return false }
            records.hasGoalEvent = isKnown
        }
        return true
    }

    /// Performs a write of a rule if it is part of the user's state; see ``TransactionEffects`` for the others.
    func perform(_ write: UserRecords.Write) {
        if hasFeed { feed.append(write, of: userID) }
        switch write {
        case .putProfile(let record, _): set(record)
        case .deleteProfile: set(ProfileRecord?.none)
        case .putForcedVariation(let variation):
            remove(variation)
            forcedVariations.append(variation)
            putForcedVariations.append(variation)
            needsGuard = true
        case .deleteForcedVariation(let variation):
            remove(variation)
            deletedForcedVariations.append(variation)
            needsGuard = true
        case .putExposure(let stored):
            exposures.removeAll { $0.exposure.experimentID == stored.exposure.experimentID }
            exposures.append(stored)
            needsGuard = true
        case .putTotal(let total, let key):
            totals[key] = total
            putTotals[key] = total
            needsGuard = true
        case .deleteTotals(let experimentID):
            totals = totals.filter { $0.key.experimentID != experimentID }
            putTotals = putTotals.filter { $0.key.experimentID != experimentID }
            deletedTotals.insert(experimentID)
            needsGuard = true
        case .insertGoalEvent(let event):
            goalEvents.append(
                .init(
                    goal: event.goal, value: event.value, happenedAt: event.happenedAt, senderID: event.senderID))
            if let senderID = event.senderID { senderIDs[senderID] = true }
            otherRecords.goalEvents.count += 1
            needsGuard = true
        case .putAttributes(let record, _): set(record.isEmpty ? nil : record)
        // The other user's events are unknown here: a merge has a transaction of its own.
        case .takeOver: needsGuard = true
        case .putPeriod, .putSeries, .expectNewestDatafile: break
        case .eraseStickyDocuments: stickyDocuments = []
        case .eraseOtherRecords: eraseOtherRecords()
        case .noteRemoval:
            isRemoved = true
            if version != nil { deletesRow = true }
        case .recordAudit(let note, _): if note.userID == userID { otherRecords.auditEntries.count += 1 }
        }
    }

    private func remove(_ variation: ForcedVariation) {
        func isSame(_ other: ForcedVariation) -> Bool {
            other.sdkKey == variation.sdkKey && other.experimentKey == variation.experimentKey
        }
        forcedVariations.removeAll(where: isSame)
        putForcedVariations.removeAll(where: isSame)
        deletedForcedVariations.removeAll(where: isSame)
    }

    /// Discards earlier writes of the same transaction, too. Later ones are written after the erasure.
    private func eraseOtherRecords() {
        attributes = nil
        attributesChanged = true
        (exposures, totals, forcedVariations, goalEvents) = ([], [:], [], [])
        senderIDs = senderIDs.mapValues { _ in false }
        otherRecords = .init()
        (deletedTotals, putTotals, putForcedVariations, deletedForcedVariations) = ([], [:], [], [])
        isErased = true
        needsGuard = false
    }
}

import Bucketing
import Chronology
import Storage

/// One user in an ``OptimisticTransaction``: the records as they were read, the records after the rules, and the writes
/// that the rules have requested.
///
/// The transaction sets the records that were read. For each attempt it calls ``reset()``, and then the rules read the
/// records (``fill(_:_:)``) and change them (``perform(_:)``).
final class UserState {
    let userID: Identifier

    // MARK: As it was read

    /// The version of the row; `nil` if there is no row.
    private(set) var version: Int64?
    /// The encoded attributes; `nil` for none.
    private var readAttributes: [UInt8]?
    /// The parts in other tables that were read.
    private var known = UserParts()
    /// The records as they were read, except the attributes.
    private(set) var stored: UserRecords

    // MARK: After the rules

    /// The records after the rules, except the attributes. Parts that all users share are in the transaction.
    private(set) var records: UserRecords
    /// The encoded attributes after the rules; `nil` for none.
    private(set) var attributes: [UInt8]?
    /// Whether a rule has set the profile.
    private(set) var profileChanged = false
    /// Whether a rule has set the attributes.
    private(set) var attributesChanged = false
    /// Whether the row that was read is deleted. If a later change of the transaction needs a row, a new one is
    /// inserted after the deletion.
    private(set) var deletesRow = false
    /// Whether the user is erased or merged. Other transactions must not store anything about the user at the same
    /// time.
    private(set) var isRemoved = false
    /// Whether the user's rows in other tables are deleted.
    private(set) var isErased = false
    /// The experiments whose totals are deleted, before ``putTotals`` are written.
    private(set) var deletedTotals: Set<Identifier> = []
    /// The totals of goals to write.
    private(set) var putTotals: [UserRecords.TotalKey: UserGoal] = [:]
    /// The forced variations to write, after ``deletedForcedVariations`` are deleted.
    private(set) var putForcedVariations: [ForcedVariation] = []
    /// The forced variations to delete.
    private(set) var deletedForcedVariations: [ForcedVariation] = []
    /// The entries of the user for the feed; empty if there is no feed.
    private(set) var feed = FeedEncoder()
    private let hasFeed: Bool
    /// Whether rows in other tables change. The user's row then gets a new version, so that other transactions that
    /// have read these rows conflict.
    private(set) var needsGuard = false

    init(_ userID: Identifier, hasFeed: Bool) {
        self.userID = userID
        self.hasFeed = hasFeed
        stored = UserRecords(userID: userID)
        records = stored
    }

    /// Sets the contents of the user's row.
    func read(version: Int64?, profile: UserRecords.Stored<ProfileRecord>, attributes: [UInt8]?) {
        self.version = version
        stored.profile = profile
        readAttributes = attributes
    }

    /// Begins to read another part.
    func begin(_ part: UserRecords.Part) {
        known.insert(part)
        stored.begin(part)
    }

    /// Takes a row of a part that was begun.
    func take(_ row: ResultRow, _ part: UserRecords.PartRows) {
        part.take(row, &stored)
    }

    /// Discards the changes of the rules.
    func reset() {
        records = stored
        attributes = readAttributes
        profileChanged = false
        attributesChanged = false
        needsGuard = false
        isErased = false
        isRemoved = false
        deletesRow = false
        discardOtherWrites()
        feed = FeedEncoder()
    }

    /// Discards the writes of totals and forced variations.
    private func discardOtherWrites() {
        deletedTotals = []
        putTotals = [:]
        putForcedVariations = []
        deletedForcedVariations = []
    }

    var profile: UserRecords.Stored<ProfileRecord> { records.profile }
    /// Whether the user's row gets a new version.
    var hasChanged: Bool { profileChanged || attributesChanged || needsGuard }
    /// Whether anything but the contents of the user's row changes.
    var changesOtherTables: Bool { isErased || needsGuard || deletesRow || isRemoved }
    /// Whether the user has a row after the change.
    var needsRow: Bool {
        if case .absent = profile { attributes != nil || needsGuard } else { true }
    }

    /// Stores a profile without an entry in the feed; `nil` deletes the profile.
    func set(_ profile: ProfileRecord?) {
        records.profile = profile.map { .present($0) } ?? .absent
        profileChanged = true
    }

    /// Stores a changed profile, and adds the change to the feed.
    func put(_ record: ProfileRecord, replacing stored: ProfileRecord?) {
        set(record)
        if hasFeed { feed.append(record, replacing: stored, of: userID) }
    }

    /// Stores attributes; `nil` deletes them.
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
        default:
            guard known.contains(part) else { return false }
            records.copy(part, from: self.records)
        }
        return true
    }

    /// Performs a write of a rule if it is part of the user's state. ``TransactionEffects`` performs the others.
    func perform(_ write: UserRecords.Write) {
        if hasFeed { feed.append(write, of: userID) }
        switch write {
        case .putProfile(let record, _): set(record)
        case .deleteProfile: set(ProfileRecord?.none)
        case .putForcedVariation(let variation):
            remove(variation)
            records.forcedVariations.append(variation)
            putForcedVariations.append(variation)
            needsGuard = true
        case .deleteForcedVariation(let variation):
            remove(variation)
            deletedForcedVariations.append(variation)
            needsGuard = true
        case .putExposure(let stored):
            records.exposures.removeAll { $0.exposure.experimentID == stored.exposure.experimentID }
            records.exposures.append(stored)
            needsGuard = true
        case .putTotal(let total, let key):
            records.totals[key] = total
            putTotals[key] = total
            needsGuard = true
        case .deleteTotals(let experimentID):
            records.totals = records.totals.filter { $0.key.experimentID != experimentID }
            putTotals = putTotals.filter { $0.key.experimentID != experimentID }
            deletedTotals.insert(experimentID)
            needsGuard = true
        case .insertGoalEvent(let event):
            records.goalEvents.append(
                .init(
                    goal: event.goal, value: event.value, happenedAt: event.happenedAt, senderID: event.senderID))
            if let senderID = event.senderID { records.senderIDs.insert(senderID) }
            records.otherRecords.goalEvents.count += 1
            needsGuard = true
        case .putAttributes(let record, _): set(record.isEmpty ? nil : record)
        // The events that move here need not be added to the records: a merge has a transaction of its own, so no other
        // rule reads them.
        case .takeOver: needsGuard = true
        case .putPeriod, .putSeries, .expectNewestDatafile: break
        case .eraseStickyDocuments: records.stickyDocuments = []
        case .eraseOtherRecords: eraseOtherRecords()
        case .noteRemoval:
            isRemoved = true
            // Later changes of the same transaction must see the removal.
            records.removals.append(
                RemovedUser(userHash: ErasureRules.hash(userID), removedAt: .distantFuture, account: nil))
            if version != nil { deletesRow = true }
        case .recordAudit(let note, _): if note.userID == userID { records.otherRecords.auditEntries.count += 1 }
        }
    }

    /// Removes a forced variation of an experiment from the records and from earlier writes.
    private func remove(_ variation: ForcedVariation) {
        func isSame(_ other: ForcedVariation) -> Bool {
            other.sdkKey == variation.sdkKey && other.experimentKey == variation.experimentKey
        }
        records.forcedVariations.removeAll(where: isSame)
        putForcedVariations.removeAll(where: isSame)
        deletedForcedVariations.removeAll(where: isSame)
    }

    /// Erases all records except the profile. Discards earlier writes of the same transaction. Later writes follow the
    /// erasure.
    private func eraseOtherRecords() {
        attributes = nil
        attributesChanged = true
        records.exposures = []
        records.totals = [:]
        records.forcedVariations = []
        records.goalEvents = []
        records.senderIDs = []
        records.otherRecords = .init()
        discardOtherWrites()
        isErased = true
        needsGuard = false
    }
}

import Bucketing
import Chronology
import Storage

/// What a transaction knows of one user: the records that were read, and the records after the rules.
final class UserState {
    let userID: Identifier

    // MARK: As it was read

    /// The version of the row; `nil` if there is none.
    private(set) var version: Int64?
    private var readAttributes: [UInt8]?
    /// The other parts that have been read.
    private var known = UserParts()
    /// The records, except the attributes.
    private(set) var stored: UserRecords

    // MARK: After the rules

    /// Except the attributes. What is shared by all users is the transaction's.
    private(set) var records: UserRecords
    private(set) var attributes: [UInt8]?
    private(set) var profileChanged = false
    private(set) var attributesChanged = false
    /// Whether the row that was read is to be deleted, unless a later change needs it.
    private(set) var deletesRow = false
    /// Whether the user is erased, or becomes part of another: nobody may store anything about the user meanwhile.
    private(set) var isRemoved = false
    /// Whether the rows in other tables are to be deleted.
    private(set) var isErased = false
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

    func take(_ row: ResultRow, _ part: UserRecords.PartRows) {
        part.take(row, &stored)
    }

    /// Discards the changes of the rules.
    func reset() {
        (records, attributes) = (stored, readAttributes)
        (profileChanged, attributesChanged, needsGuard) = (false, false, false)
        (isErased, isRemoved, deletesRow) = (false, false, false)
        (deletedTotals, putTotals, putForcedVariations, deletedForcedVariations) = ([], [:], [], [])
        feed = FeedEncoder()
    }

    var profile: UserRecords.Stored<ProfileRecord> { records.profile }
    var hasChanged: Bool { profileChanged || attributesChanged || needsGuard }
    /// Whether anything but the contents of the user's row changes.
    var changesOtherTables: Bool { isErased || needsGuard || deletesRow || isRemoved }
    /// Whether the user has a row after the change.
    var needsRow: Bool {
        if case .absent = profile { attributes != nil || needsGuard } else { true }
    }

    func set(_ profile: ProfileRecord?) {
        records.profile = profile.map { .present($0) } ?? .absent
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
        default:
            guard known.contains(part) else { return false }
            records.copy(part, from: self.records)
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
        // The other user's events are unknown here: a merge has a transaction of its own.
        case .takeOver: needsGuard = true
        case .putPeriod, .putSeries, .expectNewestDatafile: break
        case .eraseStickyDocuments: records.stickyDocuments = []
        case .eraseOtherRecords: eraseOtherRecords()
        case .noteRemoval:
            isRemoved = true
            // For later changes of the same transaction.
            records.removals.append(
                RemovedUser(userHash: ErasureRules.hash(userID), removedAt: .distantFuture, account: nil))
            if version != nil { deletesRow = true }
        case .recordAudit(let note, _): if note.userID == userID { records.otherRecords.auditEntries.count += 1 }
        }
    }

    private func remove(_ variation: ForcedVariation) {
        func isSame(_ other: ForcedVariation) -> Bool {
            other.sdkKey == variation.sdkKey && other.experimentKey == variation.experimentKey
        }
        records.forcedVariations.removeAll(where: isSame)
        putForcedVariations.removeAll(where: isSame)
        deletedForcedVariations.removeAll(where: isSame)
    }

    /// Discards earlier writes of the same transaction, too. Later ones are written after the erasure.
    private func eraseOtherRecords() {
        attributes = nil
        attributesChanged = true
        (records.exposures, records.totals, records.forcedVariations) = ([], [:], [])
        (records.goalEvents, records.senderIDs, records.otherRecords) = ([], [], .init())
        (deletedTotals, putTotals, putForcedVariations, deletedForcedVariations) = ([], [:], [], [])
        isErased = true
        needsGuard = false
    }
}

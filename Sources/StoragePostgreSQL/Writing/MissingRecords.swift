import Bucketing
import Dispatch
import Storage

/// The data that rules have asked for and that a transaction must read before it applies them again. All of it is read in one
/// exchange.
struct MissingRecords {
    private struct Sender: Hashable {
        let userID: Identifier
        let senderID: Identifier
    }

    var rows: Set<Identifier> = []
    var newestDatafile = false
    var definedAttributes = false
    var series = false
    var erasures: Set<Identifier> = []
    private var exposures: Set<Identifier> = []
    /// Users all of whose totals are needed, and single totals of others.
    private var totals: Set<Identifier> = []
    private var someTotals: [Identifier: Set<UserRecords.TotalKey>] = [:]
    private var forcedVariations: Set<Identifier> = []
    private var otherRecords: Set<Identifier> = []
    private var stickyDocuments: Set<Identifier> = []
    private var goalEvents: [Identifier: Timestamp] = [:]
    private var senders: Set<Sender> = []
    private var periods: Set<Identifier> = []
    private var statuses: Set<Identifier> = []
    private var removals: Set<Identifier> = []

    mutating func add(_ part: UserRecords.Part, of userID: Identifier) {
        switch part {
        case .profile, .attributes: break
        case .definedAttributes: definedAttributes = true
        case .newestDatafile: newestDatafile = true
        case .periods(let experimentID): periods.insert(experimentID)
        case .statuses(let experimentID): statuses.insert(experimentID)
        case .otherRecords: otherRecords.insert(userID)
        case .stickyDocuments: stickyDocuments.insert(userID)
        case .forcedVariations: forcedVariations.insert(userID)
        case .exposures, .exposure: exposures.insert(userID)
        case .totals: totals.insert(userID)
        case .someTotals(let keys): someTotals[userID, default: []].formUnion(keys)
        case .series: series = true
        case .goalEvents(let since): goalEvents[userID] = min(goalEvents[userID] ?? since, since)
        case .removals: removals.insert(userID)
        case .goalEvent(let senderID): senders.insert(Sender(userID: userID, senderID: senderID))
        }
    }

    var isEmpty: Bool {
        rows.isEmpty && !newestDatafile && !definedAttributes && !series && erasures.isEmpty && exposures.isEmpty
            && totals.isEmpty && someTotals.isEmpty && forcedVariations.isEmpty && otherRecords.isEmpty
            && goalEvents.isEmpty && senders.isEmpty && periods.isEmpty && statuses.isEmpty
            && stickyDocuments.isEmpty && removals.isEmpty
    }

    /// A query, and what to do with its rows.
    typealias Reading = (query: Query, take: (Rows, OptimisticTransaction) -> Void)

    /// Returns the queries. Those of users' rows come first: if anything changes after a version was read, the write
    /// fails.
    ///
    /// - Parameters:
    ///   - rowStatement: selects users' rows.
    ///   - locked: the users whose rows are locked already; `nil` to lock none.
    ///   - store: of this server, whose own erasures do not count.
    func readings(_ rowStatement: Statement, locked: [Identifier]?, of store: PostgreSQLStore) -> [Reading] {
        var readings: [Reading] = []
        if !rows.isEmpty {
            if locked != nil {
                for userID in rows.sorted() { readings.append((UserRows.lockRow(.text(userID.string)), { _, _ in })) }
            }
            // All in one statement: what several users have must be of one moment, and a row that does not exist yet cannot
            // be locked.
            let users = rows.union(locked ?? []).sorted()
            readings.append((rowStatement(.texts(users.map(\.string))), { $1.takeRows($0, of: users) }))
        }
        if newestDatafile {
            readings.append(
                (
                    ProjectStateRow.read(),
                    { $1.newestDatafileVersion = $0.first.map { ProjectStateRow.newestDatafile(in: $0) } ?? 0 }
                ))
        }
        if definedAttributes {
            readings.append(
                (
                    AttributeRows.names(),
                    { rows, transaction in
                        transaction.attributeNames = Dictionary(
                            rows.map { (UInt32(clamping: $0.integer(0)), $0.identifier(1)) },
                            uniquingKeysWith: { first, _ in first })
                    }
                ))
        }
        if series {
            readings.append(
                (
                    SeriesRows.tracked(),
                    { rows, transaction in transaction.series = store.took(SeriesRows.decode(rows)) }
                ))
        }
        readings += readingsOfErasures(store.server) + readingsOfParts(store)
        return readings
    }

    private func readingsOfErasures(_ server: Int64) -> [Reading] {
        guard !erasures.isEmpty else { return [] }
        let hashes = Dictionary(erasures.map { (ErasureRules.hash($0), $0) }, uniquingKeysWith: { first, _ in first })
        return [
            (
                ErasureRows.ages(.integers(hashes.keys.map { $0 }), .integer(server)),
                { [erasures] rows, transaction in
                    // Slightly later than the database's own time: at worst an event is dropped, but no erased user is
                    // restored.
                    transaction.erasures.checkedAt = DispatchTime.now().uptimeNanoseconds
                    for userID in erasures { transaction.erasures.ages[userID] = .infinity }
                    for row in rows {
                        if let userID = hashes[row.integer(0)] {
                            transaction.erasures.ages[userID] = row.double(1)
                        }
                    }
                }
            )
        ]
    }

    private func readingsOfParts(_ store: PostgreSQLStore) -> [Reading] {
        var readings: [Reading] = []
        func read(
            _ users: Set<Identifier>, _ statement: Statement, _ take: @escaping (Rows, OptimisticTransaction) -> Void
        ) {
            guard !users.isEmpty else { return }
            readings.append((statement(.texts(users.sorted().map(\.string))), take))
        }
        read(periods, AllocationPeriodRows.ofExperiments) { [periods] rows, transaction in
            for experimentID in periods { transaction.readPeriods[experimentID] = [] }
            for row in rows {
                let (experimentID, period) = AllocationPeriod.decode(row)
                transaction.readPeriods[experimentID]?.append(period)
            }
        }
        read(statuses, StatusPeriodRows.ofExperiments) { [statuses] rows, transaction in
            for experimentID in statuses { transaction.readStatuses[experimentID] = [] }
            for row in rows {
                let (experimentID, period) = StatusPeriod.decode(row)
                transaction.readStatuses[experimentID]?.append(period)
            }
        }
        read(exposures, EventRows.exposures) { [exposures] rows, transaction in
            for userID in exposures { transaction.users[userID]?.readExposures = [] }
            for row in rows {
                let stored = StoredExposure(row)
                transaction.users[stored.exposure.userID]?.readExposures?.append(stored)
            }
        }
        read(totals, EventRows.totals) { [totals] rows, transaction in
            for userID in totals { transaction.users[userID]?.readTotals = .init(isComplete: true) }
            Self.takeTotals(rows, transaction)
        }
        if !someTotals.isEmpty {
            let asked = someTotals.flatMap { userID, keys in keys.map { (userID: userID, key: $0) } }
            let statement = store.isDistributed ? EventRows.someTotalsDistributed : EventRows.someTotals
            let query = statement(
                .texts(asked.map(\.userID.string)), .texts(asked.map(\.key.experimentID.string)),
                .texts(asked.map(\.key.goal.string)))
            readings.append(
                (
                    query,
                    { [someTotals] rows, transaction in
                        for (userID, keys) in someTotals { transaction.users[userID]?.readTotals.keys.formUnion(keys) }
                        Self.takeTotals(rows, transaction)
                    }
                ))
        }
        read(forcedVariations, EventRows.forcedVariations) { [forcedVariations] rows, transaction in
            for userID in forcedVariations { transaction.users[userID]?.readForcedVariations = [] }
            for row in rows {
                let variation = ForcedVariation(row)
                transaction.users[variation.userID]?.readForcedVariations?.append(variation)
            }
        }
        read(otherRecords, EventRows.goalEventCounts) { [otherRecords] rows, transaction in
            for userID in otherRecords { transaction.users[userID]?.readOtherRecords = .init() }
            for row in rows {
                transaction.users[row.identifier(0)]?.readOtherRecords?.goalEvents = .init(row, at: 1)
            }
        }
        read(otherRecords, AuditRows.counts) { rows, transaction in
            for row in rows {
                transaction.users[row.identifier(0)]?.readOtherRecords?.auditEntries = .init(row, at: 1)
            }
        }
        read(otherRecords, AuditRows.mergeCounts) { rows, transaction in
            for row in rows {
                transaction.users[row.identifier(0)]?.readOtherRecords?.mergesIntoOthers = Int(clamping: row.integer(1))
            }
        }
        if !removals.isEmpty {
            let hashes = Dictionary(
                removals.map { (ErasureRules.hash($0), $0) }, uniquingKeysWith: { first, _ in first })
            readings.append(
                (
                    ErasureRows.removals(.integers(hashes.keys.map { $0 })),
                    { rows, transaction in
                        for userID in hashes.values { transaction.users[userID]?.readRemovals = [] }
                        for row in rows {
                            let removal = RemovedUser(row)
                            if let userID = hashes[removal.userHash] {
                                transaction.users[userID]?.readRemovals?.append(removal)
                            }
                        }
                    }
                ))
        }
        read(stickyDocuments, StickyDocumentRows.ofUsers) { [stickyDocuments] rows, transaction in
            for userID in stickyDocuments { transaction.users[userID]?.readStickyDocuments = [] }
            for row in rows {
                transaction.users[row.identifier(0)]?.readStickyDocuments?.append(.init(row, at: 1))
            }
        }
        if !goalEvents.isEmpty {
            let asked = goalEvents.sorted { $0.key < $1.key }
            let query = EventRows.goalEvents(.texts(asked.map(\.key.string)), .integers(asked.map(\.value)))
            readings.append(
                (
                    query,
                    { rows, transaction in
                        for (userID, since) in asked { transaction.users[userID]?.readGoalEvents = (since, []) }
                        for row in rows {
                            transaction.users[row.identifier(0)]?.readGoalEvents?.events.append(.init(row, at: 1))
                        }
                    }
                ))
        }
        if !senders.isEmpty {
            let asked = Array(senders)
            let query = EventRows.knownSenders(
                .texts(asked.map(\.userID.string)), .texts(asked.map(\.senderID.string)))
            readings.append(
                (
                    query,
                    { rows, transaction in
                        for sender in asked { transaction.users[sender.userID]?.readSenderIDs[sender.senderID] = false }
                        for row in rows {
                            transaction.users[row.identifier(0)]?.readSenderIDs[row.identifier(1)] = true
                        }
                    }
                ))
        }
        return readings
    }

    private static func takeTotals(_ rows: Rows, _ transaction: OptimisticTransaction) {
        for row in rows {
            let (key, total) = UserGoal.decode(row)
            transaction.users[row.identifier(0)]?.readTotals.found[key] = total
        }
    }
}

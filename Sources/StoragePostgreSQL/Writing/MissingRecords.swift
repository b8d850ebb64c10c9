import Bucketing
import Chronology
import Dispatch
import Storage

/// The data that rules have asked for, and that a transaction must read before it applies the rules again. One exchange
/// reads all of it.
struct MissingRecords {
    /// The users whose rows are missing.
    var rows: Set<Identifier> = []
    var newestDatafile = false
    var definedAttributes = false
    var series = false
    /// The users for whom it is unknown whether another server has erased them.
    var erasures: Set<Identifier> = []
    /// The experiments whose allocation periods are missing.
    private var periods: Set<Identifier> = []
    /// The experiments whose statuses are missing.
    private var statuses: Set<Identifier> = []
    /// The parts of users' records in other tables.
    private var parts: [Identifier: UserParts] = [:]

    /// Adds a part of a user's records.
    mutating func add(_ part: UserRecords.Part, of userID: Identifier) {
        switch part {
        case .profile, .attributes: break
        case .definedAttributes: definedAttributes = true
        case .newestDatafile: newestDatafile = true
        case .periods(let experimentID): periods.insert(experimentID)
        case .statuses(let experimentID): statuses.insert(experimentID)
        case .series: series = true
        default: parts[userID, default: UserParts()].insert(part)
        }
    }

    var isEmpty: Bool {
        rows.isEmpty && !newestDatafile && !definedAttributes && !series && erasures.isEmpty && periods.isEmpty
            && statuses.isEmpty && parts.isEmpty
    }

    /// A query, and a closure that gives its rows to the transaction.
    typealias Reading = (query: SQLQuery, take: (Rows, OptimisticTransaction) -> Void)

    /// Returns the queries. Those of users' rows come first: if anything changes after a version was read, the write
    /// fails.
    ///
    /// - Parameters:
    ///   - rowStatement: selects users' rows.
    ///   - locked: the users whose rows are locked already; `nil` to lock none.
    ///   - store: the store of this server. The erasures that it made itself do not count.
    func readings(_ rowStatement: Statement, locked: [Identifier]?, of store: PostgreSQLStore) -> [Reading] {
        var readings: [Reading] = []
        if !rows.isEmpty {
            if locked != nil {
                for userID in rows.sorted() { readings.append((UserRows.lockRow(.text(userID.string)), { _, _ in })) }
            }
            // Reads the rows of all users in one statement, also of those that are locked already: they must be of one
            // moment, and a row that does not exist yet cannot be locked.
            let users = rows.union(locked ?? []).sorted()
            readings.append(
                (
                    rowStatement(.texts(users.map(\.string))),
                    { rows, transaction in transaction.takeRows(rows, of: users) }
                ))
        }
        if newestDatafile {
            readings.append(
                (
                    ProjectStateRow.read(),
                    { rows, transaction in
                        transaction.newestDatafileVersion =
                            rows.first.map { ProjectStateRow.newestDatafile(in: $0) } ?? 0
                    }
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
        readings += readingsOfErasures(store.server)
        readings += Self.readings(of: periods, AllocationPeriod.rows, into: \.readPeriods, AllocationPeriod.decode)
        readings += Self.readings(of: statuses, StatusPeriod.rows, into: \.readStatuses, StatusPeriod.decode)
        return readings + readingsOfParts(isDistributed: store.isDistributed)
    }

    /// Reads when users were erased by other servers.
    private func readingsOfErasures(_ server: Int64) -> [Reading] {
        guard !erasures.isEmpty else { return [] }
        let hashes = Dictionary(erasures.map { (ErasureRules.hash($0), $0) }, uniquingKeysWith: { first, _ in first })
        return [
            (
                ErasureRows.ages(.integers(hashes.keys.map { $0 }), .integer(server)),
                { [erasures] rows, transaction in
                    // Slightly later than the time of the query in the database. So an event may be dropped that came
                    // just after an erasure, but no erased user is restored.
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

    /// Reads elements of experiments, such as allocation periods.
    private static func readings<Element>(
        of experimentIDs: Set<Identifier>, _ rows: KeyedRows,
        into known: ReferenceWritableKeyPath<OptimisticTransaction, [Identifier: [Element]]>,
        _ decode: @escaping (any Row) -> (experimentID: Identifier, period: Element)
    ) -> [Reading] {
        guard !experimentIDs.isEmpty else { return [] }
        func take(_ found: Rows, _ transaction: OptimisticTransaction) {
            for experimentID in experimentIDs { transaction[keyPath: known][experimentID] = [] }
            for row in found {
                let (experimentID, element) = decode(row)
                transaction[keyPath: known][experimentID]?.append(element)
            }
        }
        return [(.each(rows, of: experimentIDs.sorted()), take)]
    }

    /// The rows of one kind that are parts of users' records. One statement reads them for all users.
    private struct PartsOfUsers {
        let rows: UserRecords.PartRows
        /// The parts that begin with these rows; a part may consist of rows of several kinds.
        var begun: [(userID: Identifier, part: UserRecords.Part)] = []
        /// The keys of the rows.
        var keys: [[SQLValue]] = []

        /// Gives the rows to their users.
        func take(_ found: Rows, _ transaction: OptimisticTransaction) {
            for (userID, part) in begun { transaction.users[userID]?.begin(part) }
            switch rows.owner {
            case .id(let column): for row in found { transaction.users[row.identifier(column)]?.take(row, rows) }
            case .hash(let column):
                let users = Dictionary(
                    begun.map { (ErasureRules.hash($0.userID), $0.userID) }, uniquingKeysWith: { first, _ in first })
                for row in found {
                    if let userID = users[row.integer(column)] { transaction.users[userID]?.take(row, rows) }
                }
            }
        }
    }

    /// Groups the parts of all users by the kind of their rows.
    private func readingsOfParts(isDistributed: Bool) -> [Reading] {
        var kinds: [PartsOfUsers] = []
        var places: [String: Int] = [:]
        for (userID, parts) in parts.sorted(by: { $0.key < $1.key }) {
            for part in parts.all {
                for (index, (rows, keys)) in UserRecords.rows(of: part, userID, .postgreSQL).enumerated() {
                    let name = rows.rows.name(.select, keys: keys.count)
                    let place = places[name] ?? kinds.count
                    if place == kinds.count { kinds.append(PartsOfUsers(rows: rows)) }
                    places[name] = place
                    if index == 0 { kinds[place].begun.append((userID, part)) }
                    kinds[place].keys.append(keys)
                }
            }
        }
        return kinds.map { kind in
            (SQLQuery.each(kind.rows.rows, kind.keys, isDistributed: isDistributed), { kind.take($0, $1) })
        }
    }
}

/// A set of parts of a user's records: those that are to be read, or those that have been read. Parts that overlap are
/// combined, so that each row is read once.
struct UserParts {
    private var parts: Set<UserRecords.Part> = []
    private var totals: Set<UserRecords.TotalKey> = []
    private var eventsSince: Instant?

    mutating func insert(_ part: UserRecords.Part) {
        switch part {
        // All exposures of the user: one statement then serves users who need one exposure and users who need all.
        case .exposure: parts.insert(.exposures)
        case .removals: parts.insert(Self.removals)
        case .someTotals(let keys): totals.formUnion(keys)
        case .goalEvents(let since): eventsSince = min(eventsSince ?? since, since)
        default: parts.insert(part)
        }
    }

    func contains(_ part: UserRecords.Part) -> Bool {
        switch part {
        case .exposure: parts.contains(.exposures)
        case .removals: parts.contains(Self.removals)
        case .someTotals(let keys):
            keys.allSatisfy { totals.contains($0) || parts.contains(.totals(experimentID: $0.experimentID)) }
        case .goalEvents(let since): eventsSince.map { $0 <= since } ?? false
        default: parts.contains(part)
        }
    }

    /// The parts to read.
    var all: [UserRecords.Part] {
        Array(parts) + (totals.isEmpty ? [] : [.someTotals(Array(totals))])
            + (eventsSince.map { [.goalEvents(since: $0)] } ?? [])
    }

    /// The removals of any time, in place of those since some time.
    private static let removals = UserRecords.Part.removals(since: .distantPast)
}

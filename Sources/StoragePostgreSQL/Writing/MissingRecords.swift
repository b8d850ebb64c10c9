import Bucketing
import Chronology
import Dispatch
import Storage

/// The data that rules have asked for, and that a transaction must read before it applies the rules again. One exchange
/// reads all of this data.
struct MissingRecords {
    /// The users whose rows are missing.
    var rows: Set<Identifier> = []
    /// Whether the version of the newest datafile is missing.
    var newestDatafile = false
    /// Whether the attributes of the schema are missing.
    var definedAttributes = false
    /// Whether the series of experiments are missing.
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
        // The users' rows contain these parts; see ``rows``.
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

    // MARK: Queries

    /// A query, with a function that gives its rows to the transaction.
    struct Reading {
        let query: SQLQuery
        let take: (Rows, OptimisticTransaction) -> Void

        init(_ query: SQLQuery, _ take: @escaping (Rows, OptimisticTransaction) -> Void = { _, _ in }) {
            self.query = query
            self.take = take
        }
    }

    /// Returns the queries that read all of the data. The users' rows, which have the versions, come first: if other
    /// data changes after a version was read, the version changes, too, and the write fails.
    ///
    /// - Parameters:
    ///   - rowStatement: selects users' rows.
    ///   - locked: the users whose rows are locked already; `nil` to lock none.
    ///   - store: the store of this server. The erasures that this server has made do not count.
    func readings(_ rowStatement: Statement, locked: [Identifier]?, of store: PostgreSQLStore) -> [Reading] {
        var readings = readingsOfRows(rowStatement, locked: locked)
        if newestDatafile {
            readings.append(
                Reading(ProjectStateRow.read()) { rows, transaction in
                    transaction.newestDatafileVersion = rows.first.map { ProjectStateRow.newestDatafile(in: $0) } ?? 0
                })
        }
        if definedAttributes {
            readings.append(
                Reading(AttributeRows.names()) { rows, transaction in
                    transaction.attributeNames = Dictionary(
                        rows.map { (UInt32(clamping: $0.integer(0)), $0.identifier(1)) },
                        uniquingKeysWith: { first, _ in first })
                })
        }
        if series {
            readings.append(
                Reading(SeriesRows.tracked()) { rows, transaction in
                    transaction.series = store.keepSeries(SeriesRows.decode(rows))
                })
        }
        readings += readingsOfErasures(store.server)
        readings += Self.readings(of: periods, AllocationPeriod.rows, into: \.readPeriods, AllocationPeriod.decode)
        readings += Self.readings(of: statuses, StatusPeriod.rows, into: \.readStatuses, StatusPeriod.decode)
        return readings + readingsOfParts(isDistributed: store.isDistributed)
    }

    /// Returns the queries for users' rows, after the queries that lock the rows.
    private func readingsOfRows(_ rowStatement: Statement, locked: [Identifier]?) -> [Reading] {
        guard !rows.isEmpty else { return [] }
        let locks: [Reading] = locked == nil ? [] : rows.sorted().map { Reading(UserRows.lockRow(.text($0.string))) }
        // One statement reads the rows of all users, also of the users whose rows are locked already: the rows must be
        // of one moment, and a row that does not exist yet could not be locked.
        let users = rows.union(locked ?? []).sorted()
        let reading = Reading(rowStatement(.texts(users.map(\.string)))) { rows, transaction in
            transaction.takeRows(rows, of: users)
        }
        return locks + [reading]
    }

    /// Returns the query for the times at which other servers have erased users.
    private func readingsOfErasures(_ server: Int64) -> [Reading] {
        guard !erasures.isEmpty else { return [] }
        let hashes = Dictionary(erasures.map { (ErasureRules.hash($0), $0) }, uniquingKeysWith: { first, _ in first })
        let query = ErasureRows.ages(.integers(hashes.keys.map { $0 }), .integer(server))
        let reading = Reading(query) { [erasures] rows, transaction in
            // Slightly later than the time of the query in the database. So an event that came just after an erasure
            // may be dropped, but no erased user is restored.
            transaction.erasures.checkedAt = DispatchTime.now().uptimeNanoseconds
            for userID in erasures { transaction.erasures.ages[userID] = .infinity }
            for row in rows {
                if let userID = hashes[row.integer(0)] { transaction.erasures.ages[userID] = row.double(1) }
            }
        }
        return [reading]
    }

    /// Returns the query for elements of experiments, such as allocation periods.
    ///
    /// - Parameter known: the property of the transaction that receives the elements.
    private static func readings<Element>(
        of experimentIDs: Set<Identifier>, _ rows: KeyedRows,
        into known: ReferenceWritableKeyPath<OptimisticTransaction, [Identifier: [Element]]>,
        _ decode: @escaping (any Row) -> (experimentID: Identifier, period: Element)
    ) -> [Reading] {
        guard !experimentIDs.isEmpty else { return [] }
        let reading = Reading(.each(rows, of: experimentIDs.sorted())) { found, transaction in
            for experimentID in experimentIDs { transaction[keyPath: known][experimentID] = [] }
            for row in found {
                let (experimentID, element) = decode(row)
                transaction[keyPath: known][experimentID]?.append(element)
            }
        }
        return [reading]
    }

    /// The rows of one kind that are parts of users' records. One statement reads these rows for all users.
    private struct PartsOfUsers {
        let rows: UserRecords.PartRows
        /// The parts whose first rows are of this kind. A part may consist of rows of several kinds, and is begun once.
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

    /// Returns the queries for the parts of all users, one for each kind of rows.
    private func readingsOfParts(isDistributed: Bool) -> [Reading] {
        var kinds: [PartsOfUsers] = []
        /// The index of each kind, by the name of its statement.
        var indices: [String: Int] = [:]
        for (userID, parts) in parts.sorted(by: { $0.key < $1.key }) {
            for part in parts.all {
                for (number, (rows, keys)) in UserRecords.rows(of: part, userID, .postgreSQL).enumerated() {
                    let name = rows.rows.name(.select, keys: keys.count)
                    let index = indices[name] ?? kinds.count
                    if index == kinds.count { kinds.append(PartsOfUsers(rows: rows)) }
                    indices[name] = index
                    if number == 0 { kinds[index].begun.append((userID, part)) }
                    kinds[index].keys.append(keys)
                }
            }
        }
        return kinds.map { kind in
            Reading(.each(kind.rows.rows, kind.keys, isDistributed: isDistributed)) { rows, transaction in
                kind.take(rows, transaction)
            }
        }
    }
}

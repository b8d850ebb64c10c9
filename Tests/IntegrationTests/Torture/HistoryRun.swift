import APITestSupport
import Foundation
import PostgreSQLTestSupport
import ProcessTestSupport
import TestSupport
import Testing

/// Many clients on few users, all of whom change the same, and a check that all their answers together can be explained.
final class HistoryRun {
    struct Setting: Sendable, CustomStringConvertible {
        let description: String
        var servers = 1
        var clients = 8
        /// Milliseconds.
        var timeToLive: UInt64?
        /// Whether a server is killed in the middle of each round.
        var kills = false
        /// Whether clients change which variations the experiments have.
        var changesVariations = false
        /// Whether users are merged, two and two.
        var merges = false
        var database = Database.sqlite

        enum Database {
            case sqlite
            /// - Parameter crashes: whether the database is killed in the middle of each round, and started again.
            case postgreSQL(TestDatabase.Kind, crashes: Bool = false)

            var isSQLite: Bool {
                if case .sqlite = self { true } else { false }
            }

            var crashes: Bool {
                if case .postgreSQL(_, crashes: true) = self { true } else { false }
            }
        }

        static let all = [
            // With more clients what may have expired in each order of their operations is too much to check.
            Setting(description: "two servers, assignments that expire", servers: 2, clients: 3, timeToLive: 80),
            Setting(description: "one server"),
            Setting(description: "two servers on one file", servers: 2),
            Setting(description: "two servers, variations that come and go", servers: 2, changesVariations: true),
            Setting(description: "two servers, users who are merged", servers: 2, clients: 4, merges: true),
            Setting(
                description: "two servers, merges, and variations that come and go", servers: 2, clients: 4,
                changesVariations: true, merges: true),
            Setting(description: "two servers, one of them killed", servers: 2, kills: true),
            Setting(description: "one client", clients: 1),
        ]

        /// Two servers on one PostgreSQL each; the short form goes through the first of them only.
        static let postgreSQL: [Setting] = {
            let plain = Database.postgreSQL(.postgreSQL)
            let all = [
                Setting(
                    description: "PostgreSQL, users who are merged", servers: 2, clients: 4, merges: true,
                    database: plain
                ),
                Setting(description: "PostgreSQL", servers: 2, database: plain),
                Setting(
                    description: "PostgreSQL, variations that come and go", servers: 2, changesVariations: true,
                    database: plain),
                Setting(
                    description: "PostgreSQL, merges, and variations that come and go", servers: 2, clients: 4,
                    changesVariations: true, merges: true, database: plain),
                Setting(
                    description: "PostgreSQL, one of the servers killed", servers: 2, kills: true, database: plain),
                Setting(
                    description: "PostgreSQL, assignments that expire", servers: 2, clients: 3, timeToLive: 80,
                    database: plain),
            ]
            let merged = Setting(
                description: "Citus, users who are merged", servers: 2, clients: 4, merges: true,
                database: .postgreSQL(.citus))
            guard TortureSettings.isLong || TestDatabase.Kind.chosen != nil else { return [all[0]] }
            let hasCitus = PostgreSQLServer.hasCitus
            let kinds = TestDatabase.Kind.allCases.filter { $0 != .citus || hasCitus }
            let others = kinds.dropFirst().map { kind in
                Setting(description: "PostgreSQL, \(kind)", servers: 2, database: .postgreSQL(kind))
            }
            let crashes = kinds.map { kind in
                Setting(
                    description: "PostgreSQL, \(kind), the database killed", servers: 2,
                    database: .postgreSQL(kind, crashes: true))
            }
            return all + others + (hasCitus ? [merged] : []) + crashes
        }()

        /// All, or those that `HOLDFAST_TORTURE_ONLY` and `HOLDFAST_TEST_DATABASE` name.
        static let chosen = (all + postgreSQL).filter { setting in
            guard TortureSettings.only.map(setting.description.contains) ?? true else { return false }
            guard let chosen = TestDatabase.Kind.chosen else { return true }
            guard case .postgreSQL(chosen, _) = setting.database else { return false }
            return true
        }
    }

    private let setting: Setting
    private let database: any TestLocation
    private let seed: UInt64
    private let users = (0..<4).map { "shared\($0)" }
    private let model: ProfileModel
    /// By the users that each checks.
    private var checkers: [[String]: HistoryChecker]
    private var servers: [ServerProcess] = []
    private var experimentChanges: [ExperimentChange] = []
    /// Operations that were explained.
    private(set) var checked = 0
    private(set) var rounds = 0

    init(_ setting: Setting, in directory: TemporaryDirectory, seed: UInt64) throws {
        self.setting = setting
        self.seed = seed
        database = try SharedDatabase.make(setting.database, in: directory)
        let model = ProfileModel(timeToLive: setting.timeToLive.map { $0 * 1_000_000 })
        self.model = model
        let groups = setting.merges ? [Array(users[0...1]), Array(users[2...3])] : users.map { [$0] }
        checkers = Dictionary(uniqueKeysWithValues: groups.map { ($0, HistoryChecker(model)) })
        servers = try (0..<setting.servers).map { _ in try start() }
        try DatafileExperiment.make(on: servers)
    }

    private func start() throws -> ServerProcess {
        let options = setting.timeToLive.map { ["--assignment-ttl", "\($0)ms"] } ?? []
        return try ServerProcess(database: database.location, options + database.options)
    }

    /// - Parameter operations: of all clients together.
    func round(operations: Int) throws {
        rounds += 1
        let clients = (0..<setting.clients).map { number in
            LoadClient(
                number: (rounds - 1) * setting.clients + number, seed: seed, users: users, insists: false,
                limit: operations / setting.clients, changesVariations: setting.changesVariations,
                merges: setting.merges,
                // PostgreSQL may still commit what a dead server asked of it.
                cutsEndOperations: setting.database.isSQLite, expires: true)
        }
        let load = Load(of: clients, on: servers.map(\.port))
        if setting.kills {
            load.wait { $0.answered >= operations / 2 }
            servers.removeLast().kill()
        }
        if setting.database.crashes {
            load.wait { $0.answered >= operations / 2 }
            try database.crash()
        }
        load.waitForEnd()
        if let wrong = load.counts.wrong.first { throw TestFailure(wrong) }
        experimentChanges += clients.flatMap(\.experimentHistory)
        try check(clients.flatMap(\.history))
        try TotalsCheck(server: servers[0]).check()
        if setting.kills { servers.append(try start()) }
    }

    private func check(_ history: [HistoryEvent]) throws(HistoryChecker.Violation) {
        let end = monotonicNanoseconds()
        var events = history
        let timeline = ExperimentTimeline(DatafileExperiment.all, changes: experimentChanges)
        for index in events.indices {
            let event = events[index]
            let returnedAt = min(event.returnedAt, end)
            events[index].returnedAt = returnedAt
            events[index].operation = timeline.refined(event.operation, during: event.invokedAt...returnedAt)
        }
        for users in checkers.keys.sorted(by: { $0[0] < $1[0] }) {
            let events = events.filter { users.contains($0.user) }
            try checkers[users]?.check(events)
            checked += events.count
        }
    }

    /// Erases all users on one server, and checks that the others have nothing left of them either.
    func eraseAll() throws {
        for (index, user) in users.enumerated() {
            let response = try servers[index % servers.count].request("DELETE", "/v1/profiles/\(user)")
            guard [200, 404].contains(response.status) else {
                throw TestFailure("erasure: \(response.text)")
            }
        }
        for server in servers { try TotalsCheck(server: server).expectNothing(of: users) }
    }

    func stop() {
        for server in servers { server.stop() }
    }
}

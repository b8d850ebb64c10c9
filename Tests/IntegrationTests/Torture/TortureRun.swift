import APITestSupport
import Foundation
import ProcessTestSupport
import TestSupport
import Testing

/// Servers on one database file, under load, ended and started again and again; after each round everything that
/// clients were told must be explained by what is there. Each user is changed by one client only, which asks again
/// for what it was refused, so that there is one thing at a time that may and may not have happened.
final class TortureRun {
    private let scenario: TortureScenario
    private let database: String
    private let disk: FaultyDisk?
    private let clients: [LoadClient]
    private let users: [String]
    private var checkers: [String: HistoryChecker]
    private var random: SeededGenerator
    private var audits: [HistoryEvent] = []
    private var hasExperiments = false
    private(set) var report = TortureReport()

    /// A client of this number looks at everything before each round.
    private static let auditor = -1
    /// Seconds.
    private static let patience = 60.0

    init(_ scenario: TortureScenario, in directory: TemporaryDirectory, seed: UInt64) throws {
        self.scenario = scenario
        database = directory.file("holdfast.db")
        random = SeededGenerator(seed: seed)
        let losesPower = scenario.endings.contains(.powerLoss)
        disk =
            losesPower || scenario.disk == .failing
            ? try FaultyDisk(under: database, tracksWrites: losesPower, seed: seed) : nil
        clients = (0..<8).map { number in
            LoadClient(
                number: number, seed: seed, users: (0..<6).map { "c\(number)u\($0)" }, insists: true)
        }
        users = (0..<8).flatMap { number in (0..<6).map { "c\(number)u\($0)" } }
        checkers = Dictionary(uniqueKeysWithValues: users.map { ($0, HistoryChecker(ProfileModel())) })
    }

    /// What a disk does that says "done" and has done nothing, which the run must find out.
    func makeDiskLie() {
        disk?[.syncLies] = 1
    }

    // MARK: Rounds

    func round() throws {
        report.rounds += 1
        try disk?.takeStock()
        let servers = try start()
        try audit(servers)
        let load = Load(of: clients, on: servers.map(\.port))
        try disturb(servers, load)
        let ending = scenario.endings.randomElement(using: &random) ?? .kill
        report.endings[ending, default: 0] += 1
        try end(servers, ending, load)
        load.end()
        disk?.heal()
        report.counts += load.counts
        if let wrong = load.counts.wrong.first { throw TestFailure("\(wrong), of \(load.counts.wrong.count)") }
        if ending == .powerLoss { try disk?.losePower(using: &random) }
        try check()
    }

    /// Starts once more, to see what the last round left.
    func finish() throws {
        try disk?.takeStock()
        let servers = try start()
        try audit(servers)
        try check()
        for server in servers { server.stop() }
        report.faults = disk?.faults ?? 0
    }

    private func start() throws -> [ServerProcess] {
        var servers: [ServerProcess] = []
        for _ in 0..<scenario.servers {
            let begin = ContinuousClock.now
            let server = try ServerProcess(
                database: database, ServerProcess.smallLog, environment: disk?.environment ?? [:])
            try waitUntilReady(server)
            report.slowestStart = max(report.slowestStart, .now - begin)
            servers.append(server)
        }
        if !hasExperiments { try DatafileExperiment.make(on: servers) }
        hasExperiments = true
        return servers
    }

    private func waitUntilReady(_ server: ServerProcess) throws {
        let deadline = ContinuousClock.now + .seconds(Self.patience)
        while true {
            let response = try server.request("GET", "/readyz")
            if response.status == 200 { return }
            guard .now < deadline else { throw TestFailure("not ready: \(response.text)") }
            usleep(2_000)
        }
    }

    // MARK: Disturbing

    private func disturb(_ servers: [ServerProcess], _ load: Load) throws {
        // In a long run some rounds last until the log is copied into the database.
        let length = TortureSettings.isLong && Int.random(in: 0..<5, using: &random) == 0 ? 20 : 1
        try waitForWork(of: load, length * Int.random(in: 20...150, using: &random))
        guard scenario.disk == .failing, let disk else { return }
        for _ in 0..<Int.random(in: 1...3, using: &random) {
            failSomehow(disk)
            let refused = load.counts.refused + Int.random(in: 5...40, using: &random)
            load.wait(atMost: 0.3) { $0.refused >= refused }
            // Sometimes the end comes while the disk still fails.
            if Int.random(in: 0..<4, using: &random) == 0 { return }
            disk.heal()
            let begin = ContinuousClock.now
            for server in servers { try waitUntilReady(server) }
            try waitForWork(of: load, 20)
            report.slowestRecovery = max(report.slowestRecovery, .now - begin)
        }
    }

    private func failSomehow(_ disk: FaultyDisk) {
        let kinds: [[FaultyDisk.Slot]] = [
            [.syncError], [.writeError], [.writeFull], [.writeTorn, .syncError], [.writeShort, .writeFull],
        ]
        // What a failed sync leaves out for good is told to one process only.
        disk[.syncLoses] = scenario.servers == 1 && Bool.random(using: &random) ? 1 : 0
        disk.fail(
            kinds.randomElement(using: &random) ?? [], chance: [20, 200, 1_000].randomElement(using: &random) ?? 0)
    }

    /// However long it takes; but each change within bounded time.
    private func waitForWork(of load: Load, _ count: Int) throws {
        let goal = load.counts.acknowledged + count
        while true {
            let counts = load.counts
            if counts.acknowledged >= goal || !counts.wrong.isEmpty { return }
            guard
                load.wait(atMost: Self.patience, until: { $0.acknowledged > counts.acknowledged || !$0.wrong.isEmpty })
            else { throw TestFailure("no progress: \(load.counts)") }
        }
    }

    private func end(_ servers: [ServerProcess], _ ending: TortureScenario.Ending, _ load: Load) throws {
        var rest = servers.shuffled(using: &random)
        if ending == .kill, rest.count > 1, Bool.random(using: &random), disk?.faults ?? 0 == 0 {
            // The other one goes on for a while.
            rest.removeFirst().kill()
            try waitForWork(of: load, 50)
        }
        for server in rest {
            switch ending {
            case .kill, .powerLoss: server.kill()
            case .termination: shutDown(server)
            case .killDuringTermination:
                server.child.send(SIGTERM)
                usleep(UInt32.random(in: 0..<15_000, using: &random))
                server.child.send(SIGKILL)
                #expect([.signal(SIGKILL), .exit(0)].contains(server.child.wait()))
            }
        }
    }

    private func shutDown(_ server: ServerProcess) {
        let begin = ContinuousClock.now
        server.stop()
        report.longestShutdown = max(report.longestShutdown, .now - begin)
    }

    // MARK: Checking

    /// Looks at all users through each server, and at the file itself.
    private func audit(_ servers: [ServerProcess]) throws {
        let deadline = ContinuousClock.now + .seconds(Self.patience)
        for server in servers {
            let client = try server.client()
            for user in users {
                let (method, target, body) = Operation.read.request(for: user)
                let begin = monotonicNanoseconds()
                var observation = Observation.nothing
                // A server that is kept waiting by the machine may say so.
                while observation == .nothing {
                    observation = try Operation.read.observation(in: client.request(method, target, body))
                    guard observation != .nothing || .now < deadline else {
                        throw TestFailure("\(user) is not answered")
                    }
                }
                audits.append(
                    HistoryEvent(
                        client: Self.auditor, user: user, operation: .read, invokedAt: begin,
                        returnedAt: monotonicNanoseconds(), observation: observation))
            }
        }
        let file = try DatabaseConnection(database)
        let integrity = try file.text("PRAGMA integrity_check")
        guard integrity == "ok" else { throw TestFailure("the database is damaged: \(integrity)") }
        // What is counted in each transaction agrees with what is there: none of them is there by half.
        let excess = try file.text("SELECT (SELECT profiles FROM counters) - (SELECT count(*) FROM profiles)")
        guard excess == "0" else { throw TestFailure("the counter of profiles is \(excess) too high") }
    }

    /// All servers have ended: what was not answered can no longer happen.
    private func check() throws(HistoryChecker.Violation) {
        let end = monotonicNanoseconds()
        var events = audits
        audits = []
        for client in clients {
            events += client.history
            client.history = []
        }
        for index in events.indices { events[index].returnedAt = min(events[index].returnedAt, end) }
        for (user, events) in Dictionary(grouping: events, by: \.user) {
            try checkers[user]?.check(events)
            report.checked += events.count
        }
    }
}

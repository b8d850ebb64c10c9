import APITestSupport
import Foundation
import Glibc
import PostgreSQLTestSupport
import ProcessTestSupport
import TestSupport
import Testing

/// Nothing that servers on PostgreSQL acknowledged is lost, and nobody moves, whatever becomes of servers, database and
/// network. The long form is asked for by `HOLDFAST_TORTURE_ROUNDS` or `HOLDFAST_TORTURE_SECONDS`; `HOLDFAST_TORTURE_ONLY`
/// names one fault.
@Suite struct DatabaseFaultTests {
    private static let faults: [DatabaseFault] =
        TortureSettings.isLong
        ? DatabaseFault.allCases.filter { TortureSettings.only.map($0.rawValue.contains) ?? true }
        : [.failover, .frozenPrimary, .demotedPrimary, .badNetwork]

    @Test(arguments: faults)
    func `What was acknowledged is there, and servers go on by themselves`(fault: DatabaseFault) throws {
        if fault == .fullDisk, !SmallFileSystem.canBeMade { return }
        let run = try DatabaseFaultRun(fault, seed: TortureSettings.seed)
        do {
            for _ in TortureSettings.rounds(short: 1) { try run.round() }
            run.stop()
        } catch {
            Issue.record(
                "HOLDFAST_TORTURE_SEED=\(TortureSettings.seed), \(fault), round \(run.report.rounds): \(error)")
        }
        print("\(fault), seed \(TortureSettings.seed): \(run.report)")
    }
}

/// What happens to servers on PostgreSQL while clients work.
enum DatabaseFault: String, CaseIterable, Sendable {
    /// The primary's host fails, and its synchronous standby is promoted.
    case failover
    /// The primary's host stands still, its synchronous standby is promoted, and then the old primary comes back.
    case frozenPrimary
    /// The primary is fenced and its standby promoted as Patroni does it: the primary shuts down and comes back as a
    /// standby before the other one is promoted.
    case demotedPrimary
    /// The database is killed, and started again.
    case crash
    /// One of two Holdfast servers is killed.
    case killedServer
    /// All connections are cut, again and again.
    case cutConnections
    /// The network between servers and database delays, closes and forgets connections.
    case badNetwork
    /// The database stands still for longer than the time-out, and goes on.
    case pause
    /// The disk of the database is full for a while.
    case fullDisk
}

/// Two servers on one PostgreSQL, under load, and one fault in each round; everything that clients were told must be explained
/// by what is there. Each user is changed by one client only, which asks again for what it was refused.
final class DatabaseFaultRun {
    struct Report: CustomStringConvertible {
        var rounds = 0
        var counts = Load.Counts()
        var checked = 0
        /// Without an acknowledged change, from the fault on.
        var longestGap = Duration.zero
        /// From a request to its refusal.
        var slowestRefusal = Duration.zero

        var description: String {
            "\(rounds) rounds, \(counts.answered) answered (\(counts.acknowledged) changes), \(counts.refused) refused, "
                + "\(counts.cut) cut, \(checked) checked, longest gap \(longestGap), slowest refusal \(slowestRefusal)"
        }
    }

    private let fault: DatabaseFault
    /// Before the hosts, whose directory it is in, so that it is unmounted first.
    private let disk: SmallFileSystem?
    private let proxy: FaultyProxy?
    private let hosts: PostgreSQLHosts
    private let ports: [UInt16]
    private let clients: [LoadClient]
    private let users: [String]
    private var checkers: [String: HistoryChecker]
    private var servers: [ServerProcess] = []
    /// The number of the host that is the primary.
    private var primary = 0
    private(set) var report = Report()

    private static let patience = 60.0
    private static let timeout = 1.0

    init(_ fault: DatabaseFault, seed: UInt64) throws {
        self.fault = fault
        hosts = try PostgreSQLHosts()
        let first = try PostgreSQLServer.freePort(andNext: 1)
        ports = [first, first + 1]
        proxy = fault == .badNetwork ? try FaultyProxy(to: first) : nil
        clients = (0..<8).map { number in
            LoadClient(number: number, seed: seed, users: (0..<6).map { "c\(number)u\($0)" }, insists: true)
        }
        users = (0..<8).flatMap { number in (0..<6).map { "c\(number)u\($0)" } }
        checkers = Dictionary(uniqueKeysWithValues: users.map { ($0, HistoryChecker(ProfileModel())) })
        // Made by a first command, the directory is there.
        try hosts.run("remove", "host0")
        if fault == .fullDisk {
            let path = "\(hosts.directory)/host0"
            try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: false)
            disk = try SmallFileSystem(at: path, mebibytes: 160)
            try runAt("/usr/bin/env", ["chown", "postgres", path])
            try runAt("/usr/bin/env", ["chmod", "700", path])
        } else {
            disk = nil
        }
        try hosts.run("create", "host0", "\(ports[0])")
        servers = [try start(), try start()]
        try DatafileExperiment.make(on: servers)
    }

    private func start() throws -> ServerProcess {
        let hosts = (proxy.map { [$0.port] } ?? ports).map { "127.0.0.1:\($0)" }.joined(separator: ",")
        let url = "postgresql://postgres@\(hosts)/postgres?target_session_attrs=read-write&connect_timeout=2"
        return try ServerProcess(database: url, ["--database-timeout", "\(Int(Self.timeout))s"])
    }

    func round() throws {
        report.rounds += 1
        if fault == .frozenPrimary, report.rounds > 1 {
            try hosts.run("kill", "host\(1 - primary)")
            try hosts.run("remove", "host\(1 - primary)")
        }
        if fault == .demotedPrimary, report.rounds > 1 {
            try hosts.run("synchronize", "\(ports[primary])")
        } else if [.failover, .frozenPrimary, .demotedPrimary].contains(fault) {
            try hosts.run("copy", "\(ports[primary])", "host\(1 - primary)", "\(ports[1 - primary])")
        }
        let load = Load(of: clients, on: servers.map(\.port))
        try waitForWork(of: load, 100)
        let before = load.counts.acknowledged
        let begin = ContinuousClock.now
        try inject(load)
        try waitForWork(of: load, beyond: fault == .fullDisk ? load.counts.acknowledged : before, 100)
        report.longestGap = max(report.longestGap, .now - begin)
        load.end()
        report.counts += load.counts
        if let wrong = load.counts.wrong.first { throw TestFailure("\(wrong), of \(load.counts.wrong.count)") }
        if fault == .killedServer { servers.append(try start()) }
        try check()
    }

    func stop() {
        for server in servers { server.stop() }
    }

    // MARK: Faults

    private func inject(_ load: Load) throws {
        switch fault {
        case .failover:
            try hosts.run("kill", "host\(primary)")
            try hosts.run("promote", "host\(1 - primary)", "\(ports[1 - primary])")
            try hosts.run("remove", "host\(primary)")
            primary = 1 - primary
        case .frozenPrimary:
            let before = load.counts.acknowledged
            try hosts.run("pause", "host\(primary)")
            try hosts.run("promote", "host\(1 - primary)", "\(ports[1 - primary])")
            primary = 1 - primary
            try waitForWork(of: load, beyond: before, 50)
            // Until a server has looked, which it does each second, it takes the old primary for the present one.
            for server in servers { try waitForChange(by: server) }
            try hosts.run("resume", "host\(1 - primary)")
        case .demotedPrimary:
            try hosts.run("demote", "host\(primary)", "\(ports[primary])", "\(ports[1 - primary])")
            try hosts.run("promote", "host\(1 - primary)", "\(ports[1 - primary])")
            primary = 1 - primary
        case .badNetwork:
            proxy?.fault = .disturbs
            defer { proxy?.fault = .none }
            try waitForWork(of: load, 100)
        case .crash:
            try hosts.run("kill", "host0")
            try hosts.run("start", "host0", "\(ports[0])")
        case .killedServer: servers.removeFirst().kill()
        case .cutConnections:
            for _ in 0..<10 {
                try SQLConnection("postgresql://postgres@127.0.0.1:\(ports[0])/postgres").execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'holdfast'")
                try waitForWork(of: load, 20)
            }
        case .pause:
            try hosts.run("pause", "host0")
            defer { try? hosts.run("resume", "host0") }
            for path in ["/v1/profiles/c0u0", "/v1/profiles/c1u1"] {
                let begin = ContinuousClock.now
                let response = try servers[0].request("GET", path)
                guard response.status == 503 else { throw TestFailure("503 expected: \(response.text)") }
                report.slowestRefusal = max(report.slowestRefusal, .now - begin)
            }
            guard report.slowestRefusal < .seconds(Self.patience) else {
                throw TestFailure("the refusal took \(report.slowestRefusal)")
            }
        case .fullDisk:
            let ballast = try disk?.fill() ?? ""
            let refused = load.counts.refused
            load.wait(atMost: Self.patience) { $0.refused > refused + 20 }
            try FileManager.default.removeItem(atPath: ballast)
            // It may have ended, as it could not write its log; who operates it starts it again.
            let isUp = (try? SQLConnection("postgresql://postgres@127.0.0.1:\(ports[0])/postgres")) != nil
            if !isUp { try hosts.run("start", "host0", "\(ports[0])") }
        }
    }

    /// Waits until a server makes a change, by the primary that it has found.
    private func waitForChange(by server: ServerProcess) throws {
        let deadline = ContinuousClock.now + .seconds(Self.patience)
        let body =
            #"{"user_id":"probe","experiment_bucket_map":{"p":{"variation_id":"\#(UInt32.random(in: .min ... .max))"}}}"#
        while true {
            let response = try server.request("POST", "/ups/save", body)
            if response.status == 200 { return }
            guard .now < deadline else {
                throw TestFailure("a server makes no change after the failover: \(response.text)")
            }
        }
    }

    /// - Parameter start: the number of changes from which on to count; by default those until now.
    private func waitForWork(of load: Load, beyond start: Int? = nil, _ count: Int) throws {
        let goal = (start ?? load.counts.acknowledged) + count
        guard load.wait(atMost: Self.patience, until: { $0.acknowledged >= goal || !$0.wrong.isEmpty }) else {
            throw TestFailure("no progress: \(load.counts)")
        }
    }

    // MARK: Checking

    /// Looks at all users through each server, and checks all that was answered.
    private func check() throws {
        var events: [HistoryEvent] = []
        for client in clients {
            events += client.history
            client.history = []
        }
        // What was not answered may happen for as long as the database does it.
        let end = monotonicNanoseconds()
        for index in events.indices { events[index].returnedAt = min(events[index].returnedAt, end) }
        for server in servers {
            let client = try server.client()
            for user in users { events.append(try look(at: user, client)) }
        }
        for (user, events) in Dictionary(grouping: events, by: \.user) {
            try checkers[user]?.check(events)
            report.checked += events.count
        }
    }

    private func look(at user: String, _ client: HTTPClient) throws -> HistoryEvent {
        let (method, target, body) = Operation.read.request(for: user)
        let deadline = ContinuousClock.now + .seconds(Self.patience)
        while true {
            let begin = monotonicNanoseconds()
            let observation = try Operation.read.observation(in: client.request(method, target, body))
            if observation != .nothing {
                return HistoryEvent(
                    client: -1, user: user, operation: .read, invokedAt: begin, returnedAt: monotonicNanoseconds(),
                    observation: observation)
            }
            guard .now < deadline else { throw TestFailure("\(user) is not answered") }
            usleep(10_000)
        }
    }
}

import APITestSupport
import JSON
import Testing

/// Nothing that was acknowledged is lost, whatever becomes of the process, the disk and the power. The long form is
/// asked for by `HOLDFAST_TORTURE_SECONDS`.
@Suite struct TortureTests {
    private let directory: TemporaryDirectory

    init() throws {
        directory = try TemporaryDirectory()
    }

    @Test(arguments: TortureScenario.all)
    func `What was acknowledged is there, and nothing by half`(scenario: TortureScenario) throws {
        let run = try TortureRun(scenario, in: directory, seed: TortureSettings.seed)
        do {
            for _ in TortureSettings.rounds(short: 2) { try run.round() }
            try run.finish()
        } catch {
            Issue.record(
                "HOLDFAST_TORTURE_SEED=\(TortureSettings.seed), \(scenario), round \(run.report.rounds): \(error)")
        }
        print("\(scenario), seed \(TortureSettings.seed): \(run.report)")
    }

    @Test func `A disk that does not synchronise is found out`() throws {
        let run = try TortureRun(
            TortureScenario(description: "lying disk", endings: [.powerLoss]), in: directory, seed: TortureSettings.seed
        )
        run.makeDiskLie()
        // What is lost may be all, so that even the next start may fail.
        #expect(throws: (any Error).self) {
            for _ in 0..<10 { try run.round() }
            try run.finish()
        }
    }

    @Test(arguments: [FaultyDisk.Slot.syncError, .writeError, .writeFull, .writeTorn])
    func `While every sync or every write fails nothing is answered with success`(fault: FaultyDisk.Slot) throws {
        let database = directory.file("holdfast.db")
        let disk = try FaultyDisk(under: database, tracksWrites: false, seed: TortureSettings.seed)
        let server = try ServerProcess(database: database, environment: disk.environment)
        let client = try server.client()
        #expect(try client.request("POST", "/ups/save", profile("ada", ["11": "1"])).status == 200)
        for round in 0..<3 {
            disk.fail([fault], chance: 1_000)
            for (method, target, body) in Self.changes {
                let response = try client.request(method, target, body)
                #expect(response.status == 503, "\(method) \(target): \(response.text)")
                #expect(try client.request("GET", "/v1/profiles/ada").text == profile("ada", ["11": "\(round + 1)"]))
            }
            let ready = try server.request("GET", "/readyz")
            #expect(ready.status == 503)
            #expect(
                ready["detail"].string?.contains(fault == .writeFull ? "full" : "I/O error") == true, "\(ready.text)")
            disk.heal()
            #expect(try client.request("POST", "/ups/save", profile("ada", ["11": "\(round + 2)"])).status == 200)
        }
        #expect(disk.faults >= 3 * Self.changes.count)
        server.kill()
        let restarted = try ServerProcess(database: database)
        #expect(try restarted.request("GET", "/v1/profiles/ada").text == profile("ada", ["11": "4"]))
        restarted.stop()
    }

    private static let changes: [(String, String, String?)] = [
        ("POST", "/ups/save", profile("ada", ["11": "x"])), ("PATCH", "/v1/profiles/bob", profile("bob", ["11": "x"])),
        ("PUT", "/v1/profiles/ada", profile("ada", ["12": "x"])), ("DELETE", "/v1/profiles/ada", nil),
        ("PUT", "/v1/profiles/ada/experiments/11", #"{"variation_id":"x"}"#),
        ("POST", "/v1/profiles", profile("ada", ["11": "x"])),
        ("PUT", "/v1/experiments/a", #"{"variations":[{"key":"x"}]}"#),
    ]
}

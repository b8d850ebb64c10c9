import APITestSupport
import Testing

/// What many clients are told at the same time agrees with the promises of a profile. The long form is asked for by
/// `HOLDFAST_TORTURE_SECONDS`.
@Suite struct HistoryTests {
    private let directory: TemporaryDirectory

    init() throws {
        directory = try TemporaryDirectory()
    }

    @Test(arguments: HistoryRun.Setting.chosen)
    func `All that clients are told can be explained`(setting: HistoryRun.Setting) throws {
        let run = try HistoryRun(setting, in: directory, seed: TortureSettings.seed)
        do {
            for _ in TortureSettings.rounds(short: 1) { try run.round(operations: 800) }
            try run.eraseAll()
            run.stop()
        } catch {
            Issue.record("HOLDFAST_TORTURE_SEED=\(TortureSettings.seed), \(setting), round \(run.rounds): \(error)")
        }
        print("\(setting), seed \(TortureSettings.seed): \(run.checked) operations explained")
    }

    @Test func `One client asks and is told the same with the same seed`() throws {
        let runs = try (0..<2).map { number in
            let server = try ServerProcess(database: directory.file("\(number).db"))
            try DatafileExperiment.make(on: [server])
            let client = LoadClient(number: 0, seed: 7, users: ["ada", "bob"], insists: false, limit: 340)
            Load(of: [client], on: [server.port]).waitForEnd()
            return client.history.map { ($0.user, $0.operation, $0.observation) }
        }
        #expect(runs[0].count >= 300)
        #expect(runs[0].elementsEqual(runs[1], by: ==))
    }
}

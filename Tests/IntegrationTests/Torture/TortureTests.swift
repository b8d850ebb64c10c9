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
            for _ in TortureSettings.rounds(short: 3) { try run.round() }
            try run.finish()
        } catch {
            Issue.record("HOLDFAST_TORTURE_SEED=\(TortureSettings.seed), \(scenario), round \(run.report.rounds): \(error)")
        }
        print("\(scenario), seed \(TortureSettings.seed): \(run.report)")
    }

    @Test func `A disk that does not synchronise is found out`() throws {
        let run = try TortureRun(
            TortureScenario(description: "lying disk", endings: [.powerLoss]), in: directory, seed: TortureSettings.seed)
        run.makeDiskLie()
        // What is lost may be all, so that even the next start may fail.
        #expect(throws: (any Error).self) {
            for _ in 0..<10 { try run.round() }
            try run.finish()
        }
    }
}

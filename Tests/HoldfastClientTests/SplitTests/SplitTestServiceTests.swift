import HoldfastClient
import Testing

struct SplitTestServiceTests {
    private let storage = InMemorySplitTestStorage()
    private let analytics = RecordingAnalytics()

    private func service(
        _ assigner: any SplitTestAssigner, storage: (any SplitTestStorage)? = nil, userID: String = "ann"
    ) -> SplitTestService {
        SplitTestService(
            userID: userID, assigner: assigner, storage: storage ?? self.storage, exposures: analytics, analytics: analytics)
    }

    @Test(arguments: PaywallTest.Group.allCases)
    func theGroupIsTheOneAssigned(group: PaywallTest.Group) async throws {
        #expect(try await service(ScriptedAssigner(group.rawValue)).group(of: PaywallTest.self) == group)
        #expect(analytics.told == [])
    }

    @Test func aKeptGroupStaysWhateverIsAssignedLater() async throws {
        let assigner = ScriptedAssigner("control")
        #expect(try await service(assigner).group(of: PaywallTest.self) == .control)
        assigner.answer("annual_first")

        let next = service(assigner)
        #expect(try await next.group(of: PaywallTest.self) == .control)
        #expect(try await next.hit(PaywallTest.self) == .control)
        #expect(assigner.count == 1)
    }

    @Test func manyHitsAtOnceAreOneAssignmentAndOneExposure() async throws {
        let assigner = ScriptedAssigner("control_check")
        let service = service(assigner)
        let groups = try await withThrowingTaskGroup(of: PaywallTest.Group?.self) { tasks in
            for _ in 0..<100 { tasks.addTask { try await service.hit(PaywallTest.self) } }
            return try await tasks.reduce(into: Set<PaywallTest.Group?>()) { $0.insert($1) }
        }

        #expect(groups == [.controlCheck])
        #expect(assigner.count == 1)
        #expect(analytics.told == ["report ann paywall control_check", "analytics ann paywall control_check"])
    }

    @Test func theExposureIsReportedOnceOverAllRuns() async throws {
        for _ in 0..<3 { _ = try await service(ScriptedAssigner("control")).hit(PaywallTest.self) }
        #expect(analytics.told == ["report ann paywall control", "analytics ann paywall control"])
    }

    @Test func eachUserHasAnExposureOfTheirOwn() async throws {
        for user in ["caf\u{E9}", "cafe\u{301}"] {
            _ = try await service(ScriptedAssigner("control"), userID: user).hit(PaywallTest.self)
        }
        #expect(analytics.told.count == 4)
    }

    @Test func anExposureThatCouldNotBeReportedIsReportedByTheNextHit() async throws {
        let service = service(ScriptedAssigner("control"))
        analytics.failReports(with: .storage(reason: "queue is full"))
        #expect(try await service.hit(PaywallTest.self) == .control)
        #expect(analytics.told == ["not reported paywall"])

        analytics.failReports(with: nil)
        #expect(try await service.hit(PaywallTest.self) == .control)
        #expect(analytics.told.dropFirst() == ["report ann paywall control", "analytics ann paywall control"])
    }

    @Test func aUserOutsideTheTestHasNoGroupAndNoExposure() async throws {
        let assigner = ScriptedAssigner(nil)
        let service = service(assigner)
        #expect(try await service.hit(PaywallTest.self) == nil)
        #expect(try await service.group(of: PaywallTest.self) == nil)
        #expect(assigner.count == 1)
        #expect(analytics.told == [])
    }

    @Test func anUnknownVariationIsAnError() async {
        await #expect(throws: SplitTestError.unknownGroup(testKey: "paywall", variationKey: "weekly")) {
            try await service(ScriptedAssigner("weekly")).group(of: PaywallTest.self)
        }
    }

    @Test func anAssignerThatFailsIsAskedAgain() async throws {
        let assigner = ScriptedAssigner("control")
        let service = service(assigner)
        assigner.fail(.unavailable(reason: "no network"))
        await #expect(throws: SplitTestError.unavailable(reason: "no network")) {
            try await service.hit(PaywallTest.self)
        }
        assigner.answer("control")
        #expect(try await service.hit(PaywallTest.self) == .control)
    }

    @Test func aGroupThatCannotBeKeptIsAnError() async throws {
        let failing = FailingStorage()
        let service = service(ScriptedAssigner("control"), storage: failing)
        failing.fail(reads: true)
        await #expect(throws: SplitTestError.storage(reason: "Failure()")) { try await service.hit(PaywallTest.self) }
        failing.fail(writes: true)
        await #expect(throws: SplitTestError.storage(reason: "Failure()")) { try await service.hit(PaywallTest.self) }
        #expect(analytics.told == [])

        failing.fail()
        #expect(try await service.hit(PaywallTest.self) == .control)
        #expect(analytics.told.count == 2)
    }

    @Test func refreshFollowsAnOverrideAndExposesAgain() async throws {
        let assigner = ScriptedAssigner("control")
        let service = service(assigner)
        _ = try await service.hit(PaywallTest.self)
        #expect(try await service.refresh(PaywallTest.self) == .control)
        _ = try await service.hit(PaywallTest.self)
        #expect(analytics.told.count == 2)

        assigner.answer("annual_first")
        #expect(try await service.refresh(PaywallTest.self) == .annualFirst)
        #expect(try await service.hit(PaywallTest.self) == .annualFirst)
        #expect(analytics.told.suffix(2) == ["report ann paywall annual_first", "analytics ann paywall annual_first"])

        assigner.answer(nil)
        #expect(try await service.refresh(PaywallTest.self) == nil)
        #expect(try await self.service(assigner).group(of: PaywallTest.self) == nil)
    }

    @Test func aRefreshThatFailsLeavesTheGroup() async throws {
        let assigner = ScriptedAssigner("control")
        let service = service(assigner)
        _ = try await service.group(of: PaywallTest.self)
        assigner.fail(.unavailable(reason: "no network"))
        await #expect(throws: SplitTestError.self) { try await service.refresh(PaywallTest.self) }
        #expect(try await service.group(of: PaywallTest.self) == .control)
    }

    @Test func aRefreshBeforeTheFirstUseKnowsWhatWasKept() async throws {
        _ = try await service(ScriptedAssigner("control")).hit(PaywallTest.self)
        let next = service(ScriptedAssigner("control"))
        try await next.refresh(PaywallTest.self)
        _ = try await next.hit(PaywallTest.self)
        #expect(analytics.told.count == 2)
    }
}

import Bucketing
import Testing

@Suite struct AssignTests {
    let user = User(id: "u")

    @Test func anExperimentIsAssignedWithReasons() throws {
        let service = try Fixture.service(["experiments": [Fixture.experiment("e", id: "10")]])
        let experiment = try #require(service.datafile.experiment(key: "e"))
        let stored: [Identifier: StoredAssignment] = [:]
        let decision = service.assign(experiment, for: user, stored: stored, options: .includeReasons)
        #expect(decision.origin == .bucketed)
        #expect(decision.newAssignment == NewAssignment(experimentID: "10", variationID: "101"))
        #expect(
            decision.reasons == [
                "Audiences for experiment e collectively evaluated to true.",
                #"User "u" is in variation "on" of experiment e."#,
            ]
        )
    }

    @Test(arguments: [
        ("holdouts", "ab", false, true), ("holdouts", "ab", true, true), ("holdouts", "td", false, true),
        ("holdouts", "td", true, false), ("localHoldouts", "td", true, true),
    ])
    func aHoldoutKeepsUsersOut(list: String, type: String, sparesDeliveries: Bool, isHeldOut: Bool) throws {
        let service = try Fixture.service([
            "experiments": [Fixture.experiment("e", id: "10", ["type": .string(type)])],
            "\(list)": [
                Fixture.experiment(
                    "h", id: "90",
                    ["includedRules": ["10"], "excludeTargetedDeliveries": .bool(sparesDeliveries)]
                )
            ],
        ])
        let experiment = try #require(service.datafile.experiment(id: "10"))
        let decision = service.assign(experiment, for: user)
        #expect((decision.holdout != nil) == isHeldOut)
        #expect((decision.origin == .holdout) == isHeldOut)
        #expect((decision.variation == nil) == isHeldOut)
        #expect(service.variation(of: experiment, for: user).variation?.key == "on")
    }

    @Test func aPausedExperimentAssignsNobody() throws {
        let service = try Fixture.service(["experiments": [Fixture.experiment("e", id: "10", ["status": "Paused"])]])
        let experiment = try #require(service.datafile.experiment(key: "e"))
        let stored: [Identifier: StoredAssignment] = ["10": StoredAssignment(variationID: "101")]
        let decision = service.assign(experiment, for: user, stored: stored, options: .includeReasons)
        #expect(decision.variation == nil)
        #expect(decision.origin == .none)
        #expect(decision.reasons == [#"Experiment "e" is not running."#])
    }

    @Test func groupsAreNamedInReasons() throws {
        let service = try Fixture.service([
            "groups": [
                [
                    "id": "5", "policy": "random", "experiments": [Fixture.experiment("e", id: "10")],
                    "trafficAllocation": [["entityId": "11", "endOfRange": 10_000]],
                ]
            ]
        ])
        let experiment = try #require(service.datafile.experiment(key: "e"))
        let decision = service.assign(experiment, for: user, options: .includeReasons)
        #expect(decision.variation == nil)
        #expect(decision.reasons.contains(#"User "u" is not in experiment "e" of group 5."#))
    }
}

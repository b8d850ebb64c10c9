import Bucketing
import JSON
import Testing

@Suite struct AssignTests {
    let user = User(id: "u")

    @Test func `An experiment is assigned with reasons`() throws {
        let service = try Fixture.service(["experiments": [Fixture.experiment("e", id: "10")]])
        let experiment = try #require(service.datafile.experiment(key: "e"))
        let stored: [Identifier: StoredAssignment] = [:]
        let decision = service.assign(experiment, for: user, stored: stored, options: .includeReasons)
        #expect(decision.source == .bucketed)
        #expect(decision.newAssignment == NewAssignment(experimentID: "10", variationID: "101"))
        #expect(
            decision.reasons == [
                "Audiences for experiment e collectively evaluated to true.",
                #"User "u" is in variation "on" of experiment e."#,
            ]
        )
    }

    @Test(arguments: [("101", false, false), ("gone", false, true), ("101", true, false), ("gone", true, true)])
    func `An assignment to a variation that the datafile lacks is stale`(
        variation: Identifier, isOverride: Bool, isStale: Bool
    ) throws {
        let service = try Fixture.service(["experiments": [Fixture.experiment("e", id: "10")]])
        let experiment = try #require(service.datafile.experiment(key: "e"))
        let stored = ["10" as Identifier: StoredAssignment(variationID: variation, isOverride: isOverride)]
        let decision = service.assign(experiment, for: user, stored: stored)
        #expect(decision.hasStaleAssignment == isStale)
        // An override is kept for an admin to resolve.
        #expect((decision.newAssignment != nil) == (isStale && !isOverride))
    }

    @Test(arguments: [
        ("holdouts", "ab", false, true), ("holdouts", "ab", true, true), ("holdouts", "td", false, true),
        ("holdouts", "td", true, false), ("localHoldouts", "td", true, true),
    ])
    func `A holdout keeps users out`(list: String, type: String, exemptsDeliveries: Bool, isHeldOut: Bool) throws {
        let service = try Fixture.service([
            "experiments": [Fixture.experiment("e", id: "10", ["type": .string(type)])],
            "\(list)": [
                Fixture.experiment(
                    "h", id: "90",
                    ["includedRules": ["10"], "excludeTargetedDeliveries": .bool(exemptsDeliveries)]
                )
            ],
        ])
        let experiment = try #require(service.datafile.experiment(id: "10"))
        let decision = service.assign(experiment, for: user)
        #expect((decision.holdout != nil) == isHeldOut)
        #expect((decision.source == .holdout) == isHeldOut)
        #expect((decision.variation == nil) == isHeldOut)
        #expect(service.variation(of: experiment, for: user).variation?.key == "on")
    }

    @Test func `A paused experiment assigns nobody`() throws {
        let service = try Fixture.service(["experiments": [Fixture.experiment("e", id: "10", ["status": "Paused"])]])
        let experiment = try #require(service.datafile.experiment(key: "e"))
        let stored: [Identifier: StoredAssignment] = ["10": StoredAssignment(variationID: "101")]
        let decision = service.assign(experiment, for: user, stored: stored, options: .includeReasons)
        #expect(decision.variation == nil)
        #expect(decision.source == .none)
        #expect(decision.reasons == [#"Experiment "e" is not running."#])
    }

    @Test func `Reasons name the group`() throws {
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

    private static func attribute(_ name: String, _ match: String, _ value: String) -> String {
        #"{"type":"custom_attribute","name":"\#(name)","match":"\#(match)","value":\#(value)}"#
    }

    private static let needsIt = #"the audience of experiment "experiment" needs it."#

    @Test(arguments: [
        ("{}", [#"Attribute "age" is missing; \#(needsIt)"#, #"Attribute "country" is missing; \#(needsIt)"#]),
        (#"{"country":"de","age":null}"#, [#"Attribute "age" is missing; \#(needsIt)"#]),
        (
            #"{"country":"de","age":"old"}"#,
            [#"Attribute "age" has a value that the audience of experiment "experiment" cannot compare."#]
        ),
        // One attribute decides, whatever the others are.
        (#"{"country":"fr"}"#, []), (#"{"age":17}"#, []), (#"{"plan":"gold"}"#, []),
    ])
    func `Reasons name the attributes that an audience lacks`(attributes: String, named: [String]) throws {
        let (age, country) = (Self.attribute("age", "ge", "18"), Self.attribute("country", "exact", #""de""#))
        let service = try Fixture.service(
            audiences: [
                ("1", #"["and",\#(age),\#(country),\#(age)]"#), ("2", Self.attribute("plan", "exists", "null")),
            ],
            audienceConditions: #"["or","1","2"]"#)
        let experiment = try #require(service.datafile.experiment(key: "experiment"))
        let asking = User(id: "u", attributes: try Fixture.attributes(attributes))
        let reasons = service.assign(experiment, for: asking, options: .includeReasons).reasons
        #expect(Array(reasons.prefix(named.count)) == named)
        #expect(reasons.count == named.count + 2)
        #expect(reasons[named.count].hasPrefix("Audiences for experiment experiment collectively evaluated to "))
        #expect(
            service.decide("flag", for: asking, options: .includeAllReasons)?.value.reasons.starts(with: named) == true)
        // The Agent's reasons are those that it documents.
        let agent = try #require(service.decide("flag", for: asking, options: .includeReasons)).value.reasons
        if !named.isEmpty {
            #expect(agent.first == #"an error occurred while evaluating nested tree for audience ID "1""#)
        }
        #expect(!agent.contains { $0.hasPrefix("Attribute ") })
    }

    @Test func `Reasons name the attributes that rules and holdouts lack`() throws {
        let service = try Fixture.service([
            "typedAudiences": [
                ["id": "1", "name": "n", "conditions": try JSONParser().parse(Self.attribute("age", "ge", "18"))]
            ],
            "featureFlags": [Fixture.flag("flag", experiments: [], rollout: "30")],
            "rollouts": [["id": "30", "experiments": [Fixture.experiment("r", id: "31", ["audienceIds": ["1"]])]]],
            "holdouts": [Fixture.experiment("h", id: "90", ["audienceIds": ["1"]])],
        ])
        let reasons = service.decide("flag", for: user, options: .includeAllReasons)?.value.reasons ?? []
        #expect(reasons.contains(#"Attribute "age" is missing; the audience of holdout "h" needs it."#), "\(reasons)")
        #expect(reasons.contains(#"Attribute "age" is missing; the audience of rule "r" needs it."#), "\(reasons)")
    }

    @Test func `Reasons name at most 20 attributes`() throws {
        let conditions = (0..<30).map { Self.attribute("a\($0)", "exact", "1") }.joined(separator: ",")
        let service = try Fixture.service(audiences: [("1", "[\"and\",\(conditions)]")], audienceConditions: #""1""#)
        let experiment = try #require(service.datafile.experiment(key: "experiment"))
        let reasons = service.assign(experiment, for: user, options: .includeReasons).reasons
        #expect(reasons.count { $0.hasPrefix("Attribute ") } == 20)
        #expect(
            reasons.contains(
                #"10 more attributes of the audience of experiment "experiment" are missing or cannot be compared."#),
            "\(reasons)")
    }

    @Test func `Reasons name an audience that cannot be evaluated`() throws {
        let service = try Fixture.service(audiences: [], audienceConditions: #"["and","9"]"#)
        let experiment = try #require(service.datafile.experiment(key: "experiment"))
        let reasons = service.assign(experiment, for: user, options: .includeReasons).reasons
        #expect(reasons.contains(#"The audience of experiment "experiment" cannot be evaluated."#), "\(reasons)")
    }
}

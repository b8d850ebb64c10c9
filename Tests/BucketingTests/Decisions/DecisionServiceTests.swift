import Bucketing
import JSON
import Testing

@Suite struct DecisionServiceTests {
    let user = User(id: "u")

    @Test func `A large audience gives several experiments the same result as one`() throws {
        let conditions = (0..<40).map { number -> JSONValue in
            [
                "type": "custom_attribute", "name": .string("a\(number)"), "match": number == 7 ? "odd" : "exact",
                "value": 1,
            ]
        }
        let ids = (10..<15).map(String.init)
        let service = try Fixture.service([
            "typedAudiences": [["id": "A", "name": "A", "conditions": .array(["or"] + conditions)]],
            "experiments": .array(ids.map { Fixture.experiment("e\($0)", id: $0, ["audienceIds": ["A"]]) }),
            "featureFlags": .array(ids.map { Fixture.flag("f\($0)", experiments: [$0]) }),
        ])
        for attributes in [#"{"a39":1}"#, #"{"a39":2}"#] {
            let user = User(id: "u", attributes: try Fixture.attributes(attributes))
            for options in [DecideOptions.includeReasons, []] {
                let together = service.decideAll(for: user, options: options).value
                #expect(together.count == 5)
                for decision in together {
                    let single = try #require(service.decide(decision.flagKey, for: user, options: options)).value
                    #expect(decision.variation?.key == single.variation?.key)
                    #expect(decision.reasons == single.reasons)
                    #expect(decision.reasons.isEmpty == (options == []))
                }
            }
        }
    }

    @Test func `Whom an experiment may enroll is known but for attributes that requests bring`() throws {
        func experiment(_ members: KeyValuePairs<String, JSONValue>) throws -> (DecisionService, Experiment) {
            let audiences = ["exists", "exact"].map { match -> JSONValue in
                [
                    "id": .string(match), "name": "A",
                    "conditions": ["type": "custom_attribute", "name": "a", "match": .string(match), "value": 1],
                ]
            }
            let service = try Fixture.service([
                "typedAudiences": .array(audiences), "experiments": [Fixture.experiment("e", id: "10", members)],
            ])
            return (service, try #require(service.datafile.experiment(key: "e")))
        }
        for audience: JSONValue in ["exists", "exact"] {
            let (service, experiment) = try experiment(["audienceIds": [audience]])
            #expect(service.possibleEnrollment(of: experiment, for: "u", stored: Self.nothingStored)?.key == "on")
            #expect(service.variation(of: experiment, for: user, stored: Self.nothingStored).variation == nil)
        }
        for members: KeyValuePairs<String, JSONValue> in [["status": "Paused"], ["trafficAllocation": []]] {
            let (service, experiment) = try experiment(members)
            #expect(service.possibleEnrollment(of: experiment, for: "u", stored: Self.nothingStored) == nil)
        }
    }

    @Test func `An unknown flag has no decision`() throws {
        let service = try Fixture.service([:])
        #expect(service.decide("flag", for: user) == nil)
        #expect(DecisionService.reasonForUnknownFlag("flag") == "No flag was found for key \"flag\".")
        #expect(service.decide(["flag"], for: user).value.isEmpty)
    }

    @Test func `An experiment sends an impression and is stored`() throws {
        let service = try Self.service()
        let result = try #require(service.decide("flag", for: user, stored: Self.nothingStored))
        #expect(result.value.variation?.key == "on")
        #expect(result.value.ruleKey == "e")
        #expect(result.value.source == .bucketed)
        #expect(result.value.reasons.isEmpty)
        #expect(result.newAssignments == [NewAssignment(experimentID: "10", variationID: "101")])
        let impression = try #require(result.impressions.first)
        #expect(impression.ruleType == "feature-test")
        #expect(impression.campaignID == "layer-10")
        #expect(impression.experimentID == "10")
        #expect(impression.variationID == "101")
        #expect(service.decide("flag", for: user)?.newAssignments.isEmpty == true)
        #expect(service.decide("flag", for: user, options: .disableDecisionEvent)?.impressions.isEmpty == true)
    }

    @Test func `A stored assignment stays`() throws {
        let service = try Self.service(["audienceIds": ["missing"]])
        let stored: [Identifier: StoredAssignment] = ["10": StoredAssignment(variationID: "102")]
        let result = try #require(service.decide("flag", for: user, stored: stored, options: .includeReasons))
        #expect(result.value.variation?.key == "off")
        #expect(result.value.source == .stored)
        #expect(result.newAssignments.isEmpty)
        #expect(result.value.reasons == [#"User "u" was previously bucketed into variation "off" of experiment "e"."#])
        let ignoring = service.decide("flag", for: user, stored: stored, options: .ignoreUserProfileService)
        #expect(ignoring?.value.variation == nil)
    }

    @Test func `A user whose variation no longer exists is bucketed again`() throws {
        let stored: [Identifier: StoredAssignment] = ["10": StoredAssignment(variationID: "gone")]
        let result = try #require(
            try Self.service().decide("flag", for: user, stored: stored, options: .includeReasons))
        #expect(result.value.source == .bucketed)
        #expect(
            result.newAssignments
                == [NewAssignment(experimentID: "10", variationID: "101", staleVariationID: "gone")]
        )
        #expect(
            result.value.reasons == [
                #"User "u" was previously bucketed into variation with ID "gone" for experiment "e", but no matching variation was found."#,
                "Audiences for experiment e collectively evaluated to true.",
            ]
        )
    }

    @Test func `An override precedes the whitelist, even if profiles are ignored`() throws {
        let service = try Self.service(["forcedVariations": ["u": "on"]])
        let stored: [Identifier: StoredAssignment] = ["10": StoredAssignment(variationID: "102", isOverride: true)]
        let result = service.decide(
            "flag", for: user, stored: stored, options: [.ignoreUserProfileService, .includeReasons])
        #expect(result?.value.source == .override)
        #expect(result?.value.variation?.key == "off")
        #expect(result?.value.reasons == ["Override variation off found for user u"])
        #expect(service.decide("flag", for: user)?.value.source == .whitelist)
    }

    @Test func `An override whose variation no longer exists is not replaced`() throws {
        let stored: [Identifier: StoredAssignment] = ["10": StoredAssignment(variationID: "gone", isOverride: true)]
        let result = try Self.service().decide("flag", for: user, stored: stored)
        #expect(result?.value.source == .bucketed)
        #expect(result?.newAssignments.isEmpty == true)
    }

    @Test(arguments: [
        ("on", #"User "u" is whitelisted into variation "on" of experiment "e"."#),
        ("gone", #"User "u" is whitelisted into variation "gone", which is not in the datafile."#),
    ])
    func `Reasons name the whitelist`(variation: String, reason: String) throws {
        let service = try Self.service(["forcedVariations": ["u": .string(variation)]])
        let result = service.decide("flag", for: user, stored: Self.nothingStored, options: .includeReasons)
        #expect(result?.value.reasons.first == reason)
        #expect(result?.newAssignments.isEmpty == (variation == "on"))
    }

    @Test func `Forced decisions come first`() throws {
        var user = user
        user.forcedDecisions = [ForcedDecision(flagKey: "flag", ruleKey: "", variationKey: "off")]
        let result = try #require(try Self.service().decide("flag", for: user, options: .includeReasons))
        #expect(result.value.variation?.key == "off")
        #expect(result.value.ruleKey == nil)
        #expect(result.value.source == .requested)
        #expect(
            result.value.reasons == [
                "Variation (off) is mapped to flag (flag) and user (u) in the forced decision map."
            ])
        user.forcedDecisions = [ForcedDecision(flagKey: "flag", ruleKey: "e", variationKey: "gone")]
        #expect(
            try Self.service().decide("flag", for: user, options: .includeReasons)?.value.reasons.first
                == "Invalid variation is mapped to flag (flag), rule (e) and user (u) in the forced decision map."
        )
    }

    @Test func `A contextual bandit enrolls whom its traffic admits, and by a request of an SDK anybody`() throws {
        let service = try Self.service(["cmab": ["attributeIds": [], "trafficAllocation": 10_000]])
        let result = try #require(
            service.decide("flag", for: user, stored: Self.nothingStored, options: .includeReasons))
        let variation = try #require(result.value.variation)
        #expect(result.newAssignments.map(\.variationID) == [variation.id])
        #expect(result.value.reasons.contains("User bucketed into variation \(variation.key) by CMAB service"))
        let closed = try Self.service(["cmab": ["attributeIds": [], "trafficAllocation": 0]])
        let outside = try #require(closed.decide("flag", for: user, stored: Self.nothingStored))
        #expect(outside.newAssignments.isEmpty)
        let experiment = try #require(closed.datafile.experiment(key: "e"))
        let predicted = closed.predict(experiment, for: user, stored: Self.nothingStored)
        #expect(predicted.variation?.id == variation.id && predicted.newAssignment?.variationID == variation.id)
    }

    @Test func `An experiment of two flags is stored once`() throws {
        let service = try Fixture.service([
            "experiments": [Fixture.experiment("e", id: "10")],
            "featureFlags": [Fixture.flag("f", experiments: ["10"]), Fixture.flag("g", experiments: ["10"])],
        ])
        let result = service.decideAll(for: user, stored: Self.nothingStored)
        #expect(result.value.map(\.source) == [.bucketed, .stored])
        #expect(result.newAssignments.count == 1)
    }

    @Test func `Only enabled flags are returned if requested`() throws {
        let service = try Self.service(["forcedVariations": ["u": "off"]])
        let result = service.decideAll(for: user, options: .enabledFlagsOnly)
        #expect(result.value.isEmpty)
        #expect(result.impressions.count == 1)
        #expect(service.decide("flag", for: user, options: .enabledFlagsOnly)?.value.isEnabled == false)
    }

    @Test func `A bucketing id of the wrong type is reported`() throws {
        let user = User(id: "u", attributes: try Fixture.attributes(#"{"$opt_bucketing_id":5}"#))
        #expect(user.bucketingID == "u")
        #expect(
            try Self.service().decide("flag", for: user, options: .includeReasons)?.value.reasons.last
                == #"Error computing bucketing ID for experiment "e": "invalid bucketing ID provided: \"5\"""#
        )
    }

    @Test(
        arguments: [
            // Forced for a test, override, whitelisted, assigned; what decides.
            ("on", "off", "off", nil, .override, "on"), ("gone", "off", "off", nil, .whitelist, "off"),
            ("gone", "off", nil, nil, .bucketed, "on"), (nil, "off", "on", nil, .override, "off"),
            (nil, "gone", "off", nil, .whitelist, "off"), (nil, "gone", nil, nil, .bucketed, "on"),
            (nil, nil, "off", "on", .whitelist, "off"), (nil, nil, "gone", "off", .stored, "off"),
            (nil, nil, nil, "off", .stored, "off"), (nil, nil, nil, "gone", .bucketed, "on"),
            (nil, nil, nil, nil, .bucketed, "on"), (nil, "on", nil, "off", .override, "on"),
            (nil, "gone", nil, "off", .stored, "off"), (nil, "gone", "on", "off", .whitelist, "on"),
            (nil, "gone", nil, "gone", .bucketed, "on"), ("gone", "gone", nil, "off", .bucketed, "on"),
        ]
            as [(
                forced: String?, override: String?, whitelisted: String?, assigned: String?, source: DecisionSource,
                key: Identifier
            )])
    func `Forced precedes override, whitelist, stored assignment and bucketing`(
        forced: String?, override: String?, whitelisted: String?, assigned: String?, source: DecisionSource,
        key: Identifier
    ) throws {
        struct Stored: StoredAssignments {
            var forcedVariations: [Identifier: Identifier]?
            var assignment: StoredAssignment?
            var beneath: Identifier?

            func assignment(experimentID: Identifier) -> StoredAssignment? { assignment }
            func variationID(beneathOverrideIn experimentID: Identifier) -> Identifier? { beneath }
        }
        let ids: [String: Identifier] = ["on": "101", "off": "102", "gone": "109"]
        let service = try Self.service(whitelisted.map { ["forcedVariations": ["u": .string($0)]] } ?? [:])
        var stored = Stored()
        stored.forcedVariations = forced.flatMap { ids[$0] }.map { ["10": $0] }
        stored.assignment =
            override.flatMap { ids[$0] }.map { StoredAssignment(variationID: $0, isOverride: true) }
            ?? assigned.flatMap { ids[$0] }.map { StoredAssignment(variationID: $0) }
        stored.beneath = override == nil ? nil : assigned.flatMap { ids[$0] }

        let decision = try #require(service.decide("flag", for: user, stored: stored)).value
        #expect(decision.source == source)
        #expect(decision.variation?.key == key)

        // The same without bucketing.
        let experiment = try #require(service.datafile.experiment(id: "10"))
        let held = service.heldVariation(of: experiment, for: "u", stored: stored)
        #expect(held?.source == (source == .bucketed ? nil : source))
        #expect(held?.variation.key == (source == .bucketed ? nil : key))
    }

    static let nothingStored: [Identifier: StoredAssignment] = [:]

    /// The flag `flag` with the experiment `e`, id `10`.
    static func service(_ members: KeyValuePairs<String, JSONValue> = [:]) throws -> DecisionService {
        try Fixture.service([
            "experiments": [Fixture.experiment("e", id: "10", members)],
            "featureFlags": [Fixture.flag("flag", experiments: ["10"])],
        ])
    }
}

import Foundation
import Testing

@testable import HoldfastClient

@Suite struct FlagTests {
    private static let ada = HoldfastUser(id: "ada", attributes: ["country": "de"])

    @Test func `A variation's value has the type that is asked for, or the default is returned`() async throws {
        func flag(_ key: String, _ variation: String, _ variables: String = "") -> String {
            #"{"flag_key":"\#(key)","variation_key":"\#(variation)","variation_id":"1","experiment_id":null,"enabled":true,"variables":{\#(variables)},"rule_key":null,"source":"none"}"#
        }
        let flags = [
            flag("yes", "true"), flag("off", "off"), flag("ten", "10"), flag("half", "0.5"), flag("text", "new"),
            flag("json", #"{\"dark\":true}"#), flag("typed", "large", #""value":{"dark":true},"columns":3"#),
            flag("number", "many", #""value":7,"other":8"#),
        ]
        let test = try Client(
            server: StubServer { _ throws(HoldfastError) in
                .json(#"{"user_id":"ada","revision":"12","evaluations":[\#(flags.joined(separator: ","))]}"#)
            })
        let client = test.client
        #expect(client.boolVariation(flagKey: "yes", defaultValue: false) == false)
        try await client.initialize(user: Self.ada)
        #expect(client.boolVariation(flagKey: "yes", defaultValue: false))
        #expect(!client.boolVariation(flagKey: "off", defaultValue: true))
        #expect(client.boolVariation(flagKey: "text", defaultValue: true))
        #expect(client.stringVariation(flagKey: "text", defaultValue: "") == "new")
        #expect(client.stringVariation(flagKey: "yes", defaultValue: "") == "true")
        #expect(client.intVariation(flagKey: "ten", defaultValue: 1) == 10)
        #expect(client.intVariation(flagKey: "half", defaultValue: 1) == 1)
        #expect(client.doubleVariation(flagKey: "half", defaultValue: 1) == 0.5)
        #expect(client.doubleVariation(flagKey: "ten", defaultValue: 1) == 10)
        // A second number changes nothing.
        #expect(client.intVariation(flagKey: "number", defaultValue: 1) == 7)
        #expect(client.stringVariation(flagKey: "number", defaultValue: "") == "7")
        struct Theme: Decodable, Equatable { var dark: Bool }
        #expect(client.jsonVariation(flagKey: "json", defaultValue: Theme(dark: false)) == Theme(dark: true))
        #expect(client.jsonVariation(flagKey: "typed", defaultValue: ["dark": false]) == ["dark": true])
        #expect(client.jsonVariation(flagKey: "typed", defaultValue: HoldfastValue.null) == ["dark": true])
        #expect(client.jsonVariation(flagKey: "text", defaultValue: Theme(dark: true)) == Theme(dark: true))
        #expect(client.stringVariation(flagKey: "nothing", defaultValue: "default") == "default")
    }

    @Test func `A flag without a variation has the value that the server gives everybody else, or the default`()
        async throws
    {
        func flag(_ key: String, _ members: String, reason: String = "default") -> String {
            #"{"flag_key":"\#(key)","variation_key":null,"variation_id":null,"experiment_id":null,"enabled":false,\#(members),"rule_key":null,"reason":"\#(reason)","source":"none"}"#
        }
        let flags = [
            flag("off", #""type":"boolean","value":false,"variables":{"value":false}"#, reason: "disabled"),
            flag("limit", #""type":"integer","value":7,"variables":{"value":7}"#),
            flag("experiment", #""type":"string","value":null,"variables":{"value":""}"#),
            flag("several", #""type":null,"value":{"a":1},"variables":{"a":1}"#),
        ]
        let test = try Client(
            server: StubServer { _ throws(HoldfastError) in
                .json(#"{"user_id":"ada","revision":"1","evaluations":[\#(flags.joined(separator: ","))]}"#)
            })
        let client = test.client
        try await client.initialize(user: Self.ada)
        #expect(!client.boolVariation(flagKey: "off", defaultValue: true))
        #expect(client.intVariation(flagKey: "limit", defaultValue: 1) == 7)
        #expect(client.stringVariation(flagKey: "experiment", defaultValue: "mine") == "mine")
        #expect(client.jsonVariation(flagKey: "several", defaultValue: HoldfastValue.null) == .null)
        #expect(client.evaluationDetails(flagKey: "off")?.variationValue == false)
        #expect(client.evaluationDetails(flagKey: "off")?.reason == .disabled)
        #expect(client.evaluationDetails(flagKey: "limit")?.reason == .noRule)
        #expect(client.intVariation(flagKey: "off", defaultValue: 3) == 3)
        #expect(
            client.evaluationCounts().map { "\($0.flagKey) \($0.variationKey ?? "-") \($0.reason.rawValue)" } == [
                "experiment - no_rule", "limit - no_rule", "off - disabled", "off - wrong_type", "several - no_rule",
            ])
        client.destroy()
    }

    @Test func `A flag is on or off, and its variables have values`() async throws {
        let test = try Client()
        let client = test.client
        #expect(!client.isEnabled(flagKey: "checkout"))
        #expect(try await client.initialize(user: Self.ada) == .server)
        #expect(client.isEnabled(flagKey: "checkout"))
        #expect(!client.isEnabled(flagKey: "banner", defaultValue: true))
        #expect(client.isEnabled(flagKey: "nothing", defaultValue: true))
        #expect(client.boolVariation(flagKey: "checkout", variable: "eager", defaultValue: false))
        #expect(client.boolVariation(flagKey: "checkout", variable: "columns", defaultValue: true))
        #expect(client.stringVariation(flagKey: "checkout", defaultValue: "none") == "new")
        #expect(client.stringVariation(flagKey: "checkout", variable: "title", defaultValue: "none") == "Pay")
        #expect(client.stringVariation(flagKey: "banner", defaultValue: "none") == "none")
        #expect(client.intVariation(flagKey: "checkout", variable: "columns", defaultValue: 1) == 3)
        #expect(client.intVariation(flagKey: "checkout", variable: "title", defaultValue: 1) == 1)
        #expect(client.intVariation(flagKey: "banner", variable: "limit", defaultValue: 1) == 9)
        #expect(client.doubleVariation(flagKey: "banner", variable: "ratio", defaultValue: 1) == 0.5)
        #expect(
            client.jsonVariation(flagKey: "checkout", variable: "theme", defaultValue: ["dark": false]) == [
                "dark": true
            ])
        #expect(client.evaluationDetails(flagKey: "banner")?.variables == ["ratio": 0.5, "limit": 9])
        #expect(client.currentUser == Self.ada)
    }

    @Test func `Details tell id, version, user, variation and reason`() async throws {
        let test = try Client()
        try await test.client.initialize(user: Self.ada)
        let details = try #require(test.client.evaluationDetails(flagKey: "checkout"))
        #expect(details.id == "checkout:1:ada" && details.flagKey == "checkout" && details.flagVersion == 1)
        #expect(details.userID == "ada" && details.variationID == "70012" && details.variationKey == "new")
        #expect(details.variationValue == "new" && details.reason == .stored && details.messages.isEmpty)
        #expect(details.experimentID == "7001" && details.ruleKey == "checkout_test")
        let banner = try #require(test.client.evaluationDetails(flagKey: "banner"))
        #expect(banner.reason == .noRule && banner.variationValue == nil && banner.messages == ["why"])
        #expect(test.client.evaluationDetails(flagKey: "nothing") == nil)
    }

    /// Reason, source, whether there is a variation. The server's reason tells more than the source; a response of an early
    /// release has none.
    @Test(
        arguments: [
            ("targeted", "bucketed", true, .rollout), ("default", "bucketed", true, .rollout),
            ("default", "none", false, .noRule), ("disabled", "none", false, .disabled),
            ("experiment", "bucketed", true, .bucketed), ("sticky", "stored", true, .stored),
            ("override", "override", true, .override), ("whitelist", "whitelist", true, .whitelist),
            ("forced", "forced", true, .forced), ("holdout", "holdout", true, .holdout),
            ("something new", "bucketed", true, .bucketed), (nil, "stored", true, .stored),
            (nil, "none", true, .rollout), (nil, "none", false, .noRule), (nil, "something new", true, .unknown),
        ] as [(String?, String, Bool, VariationReason)])
    func `The reason is the server's`(reason: String?, source: String, hasVariation: Bool, expected: VariationReason) {
        #expect(VariationReason(reason, source: source, hasVariation: hasVariation) == expected)
    }

    @Test func `Reasons are requested if the app is configured so`() async throws {
        let test = try Client { $0.includesReasons = true }
        try await test.client.initialize(user: Self.ada)
        #expect(test.server.calls("/v1/evaluations")[0].body.contains(#""include_reasons":true"#))
    }

    @Test
    func `The first use of an experiment's variation is an exposure, later ones are not, and another variation is`()
        async throws
    {
        let test = try Client()
        try await test.client.initialize(user: Self.ada)
        // A call that returns its default shows no variation.
        _ = test.client.boolVariation(flagKey: "checkout", defaultValue: false)
        #expect(test.client.waitingEvents == 0)
        for _ in 0..<10 { _ = test.client.stringVariation(flagKey: "checkout", defaultValue: "") }
        _ = test.client.boolVariation(flagKey: "banner", defaultValue: false)
        _ = test.client.evaluationDetails(flagKey: "checkout")
        #expect(test.client.waitingEvents == 1)
        test.server.respond { call throws(HoldfastError) in
            guard call.path == "/v1/evaluations" else { return Client.usual(call) }
            return .json(Client.evaluations(revision: "2", columns: 4))
        }
        try await test.client.fetchEvaluations()
        _ = test.client.intVariation(flagKey: "checkout", variable: "columns", defaultValue: 1)
        #expect(test.client.waitingEvents == 1)
        test.server.respond { call throws(HoldfastError) in
            guard call.path == "/v1/evaluations" else { return Client.usual(call) }
            return .json(Client.evaluations(revision: "3").replacing("70012", with: "70011"))
        }
        try await test.client.fetchEvaluations()
        _ = test.client.stringVariation(flagKey: "checkout", defaultValue: "")
        #expect(test.client.waitingEvents == 2)
        try await test.client.flush()
        let sent = try JSONDecoder().decode(
            [HoldfastValue].self, from: Data(test.server.calls("/v1/exposures")[0].body.utf8))
        #expect(sent.map { $0["variation_id"] } == ["70012", "70011"])
        #expect(sent.allSatisfy { $0["user_id"] == "ada" && $0["experiment"] == "7001" })
        #expect(sent[0]["timestamp"] == "2027-01-15T08:00:00.000Z")
    }

    @Test func `An assignment is what the server says`() async throws {
        let test = try Client(
            server: StubServer { call throws(HoldfastError) in
                call.path == "/v1/assign"
                    ? .json(
                        #"{"experiment_id":"7001","experiment_key":"checkout_test","variation_id":"70012","variation_key":"new","source":"stored","reasons":[]}"#
                    )
                    : Client.usual(call)
            })
        let assignment = try await test.client.assignment(experiment: "checkout_test", user: Self.ada)
        #expect(assignment.variationKey == "new" && assignment.experimentID == "7001")
    }
}

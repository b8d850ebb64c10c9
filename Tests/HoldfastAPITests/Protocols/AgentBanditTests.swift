import APITestSupport
import JSON
import Testing

/// Contextual bandits (`cmab`) of an uploaded datafile, as the Agent decides them: the facts of its acceptance suite.
@Suite struct AgentBanditTests {
    private let server: any TestServer

    private static let datafile = #"""
        {"version":"4","accountId":"1","projectId":"2","revision":"1","groups":[],"events":[],
        "attributes":[{"id":"91","key":"greeting"}],
        "audiences":[{"id":"81","name":"greeted","conditions":"[\"and\",[\"or\",[\"or\",{\"name\":\"greeting\",\"type\":\"custom_attribute\",\"value\":\"hola\"}]]]"}],
        "featureFlags":[{"id":"5","key":"bandit_flag","rolloutId":"r","experimentIds":["7"],"variables":[]},
        {"id":"6","key":"other_flag","rolloutId":"r","experimentIds":[],"variables":[]}],
        "rollouts":[{"id":"r","experiments":[{"id":"default-r","key":"default-r","layerId":"r","status":"Running",
        "audienceIds":[],"audienceConditions":[],"forcedVariations":{},
        "variations":[{"id":"31","key":"off","featureEnabled":false}],
        "trafficAllocation":[{"entityId":"31","endOfRange":10000}]}]}],
        "experiments":[{"id":"7","key":"bandit-rule","layerId":"8","status":"Running","audienceIds":["81"],
        "audienceConditions":["or","81"],"forcedVariations":{},"cmab":{"attributeIds":["91"],"trafficAllocation":10000},
        "variations":[{"id":"71","key":"off","featureEnabled":false},{"id":"72","key":"on","featureEnabled":true}],
        "trafficAllocation":[]}]}
        """#

    init() throws {
        server = try startTestServer()
        let put = try server.request("PUT", "/v1/datafile", Self.datafile, fields: AgentSamples.fields)
        #expect(put.status == 201, "\(put.text)")
    }

    private func ask(_ query: String, _ body: String) throws -> TestResponse {
        let response = try server.request("POST", "/v1/decide\(query)", body, fields: AgentSamples.fields)
        #expect(response.status == 200, "\(response.text)")
        return response
    }

    /// Asks for the flag, as a user of the audience unless other attributes are given.
    private func decide(
        _ user: String, _ attributes: String = #"{"greeting":"hola"}"#, _ more: String = ""
    ) throws -> TestResponse {
        try ask("?keys=bandit_flag", #"{"userId":"\#(user)","userAttributes":\#(attributes)\#(more)}"#)
    }

    @Test func `A user of the audience gets a variation of the bandit`() throws {
        let decided = try decide("ann", #"{"greeting":"hola"}"#, #","decideOptions":["INCLUDE_REASONS"]"#)
        #expect(decided["flagKey"] == "bandit_flag" && decided["ruleKey"] == "bandit-rule")
        #expect(["on", "off"].contains(decided["variationKey"].string))
        #expect(decided["userContext"] == ["userId": "ann", "attributes": ["greeting": "hola"]])
        #expect(decided.text.contains("by CMAB service"), "\(decided.text)")
    }

    @Test func `Different users get all variations, each as often`() throws {
        var counts: [String: Int] = [:]
        for user in 0..<200 {
            let decided = try decide("u\(user)")
            #expect(decided["ruleKey"] == "bandit-rule")
            counts[decided["variationKey"].string ?? "", default: 0] += 1
        }
        #expect(Set(counts.keys) == ["on", "off"] && (70...130).contains(counts["on"] ?? 0), "\(counts)")
    }

    @Test func `The same user gets the same again, also with other attributes and any option of the cache`() throws {
        for user in 0..<20 {
            let first = try decide("u\(user)")
            for (attributes, options) in [
                (#"{"greeting":"hola"}"#, "[]"), (#"{"greeting":"hola","extra":"x"}"#, "[]"),
                (#"{"greeting":"hola"}"#, #"["IGNORE_CMAB_CACHE"]"#),
                (#"{"greeting":"hola"}"#, #"["RESET_CMAB_CACHE","INVALIDATE_USER_CMAB_CACHE"]"#),
            ] {
                let again = try decide("u\(user)", attributes, #","decideOptions":\#(options)"#)
                #expect(again["variationKey"] == first["variationKey"] && again["ruleKey"] == "bandit-rule")
            }
            // What an SDK is told that asks by itself.
            let predicted = try server.request(
                "POST", "/predict/7", #"{"instances":[{"visitorId":"u\#(user)","experimentId":"7"}]}"#)
            let id = first["variationKey"] == "on" ? "72" : "71"
            #expect(predicted["predictions"] == [["variation_id": .string(id)]])
        }
    }

    @Test func `Who is not in the audience gets the default delivery`() throws {
        for attributes in [#"{"greeting":"adios"}"#, "{}"] {
            let decided = try decide("ann", attributes)
            #expect(decided["ruleKey"] == "default-r" && decided["variationKey"] == "off")
            #expect(decided["enabled"] == false)
        }
    }

    @Test func `A forced decision precedes the bandit, and enrolls nobody`() throws {
        let forced =
            #","decideOptions":["INCLUDE_REASONS"],"forcedDecisions":[{"flagKey":"bandit_flag","ruleKey":"bandit-rule","variationKey":"off"}]"#
        let decided = try decide("ann", #"{"greeting":"hola"}"#, forced)
        #expect(decided["variationKey"] == "off" && decided["enabled"] == false)
        #expect(decided["reasons"].array?.first?.string?.lowercased().contains("forced decision") == true)
        #expect(try server.request("GET", "/v1/profiles/ann").status == 404)
    }

    @Test func `All flags, and several keys, have the bandit's among them`() throws {
        let all = try ask("", #"{"userId":"ann","userAttributes":{"greeting":"hola"}}"#).json.array ?? []
        #expect(all.map { $0["flagKey"] } == ["bandit_flag", "other_flag"])
        #expect(all.first?["ruleKey"] == "bandit-rule")
        let several = try ask(
            "?keys=other_flag&keys=bandit_flag", #"{"userId":"ann","userAttributes":{"greeting":"hola"}}"#)
        #expect(several.json.array?.count == 2)
        #expect(several.json.array?.last?["variationKey"] == all.first?["variationKey"])
        for user in 0..<20 {
            let body =
                #"{"userId":"u\#(user)","userAttributes":{"greeting":"hola"},"decideOptions":["ENABLED_FLAGS_ONLY"]}"#
            let enabled = try ask("", body).json.array ?? []
            #expect(enabled.allSatisfy { $0["enabled"] == true })
        }
    }

    @Test func `A bandit is added over the API to a rule of the datafile`() throws {
        let metric = #"{"kind":"conversion","goal":"buy"}"#
        #expect(
            try server.request("PUT", "/v1/metrics/bought", metric, fields: AgentSamples.fields).status == 201)
        let put = try server.request(
            "PUT", "/v1/experiments/bandit-rule",
            #"{"metrics":{"primary":["bought"]},"bandit":{"every":"6h"},"traffic":50}"#, fields: AgentSamples.fields)
        #expect(put.status == 200 && put["bandit"]["predict"] == true && put["traffic"] == 50, "\(put.text)")
        let served = try server.request("GET", "/datafiles/tests.json")
        let experiment = served["experiments"].array?.first
        #expect(experiment?["cmab"] == ["attributeIds": ["91"], "trafficAllocation": 5_000])
        #expect(experiment?["audienceIds"] == ["81"])
        let outside = try (0..<100).count { try decide("w\($0)")["ruleKey"] == "default-r" }
        #expect((30...70).contains(outside), "\(outside)")
    }
}

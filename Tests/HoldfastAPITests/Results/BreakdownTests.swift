import APITestSupport
import JSON
import Testing

/// Results by the values of an attribute.
@Suite struct BreakdownTests {
    private let server: any TestServer

    init() throws {
        server = try startTestServer()
        #expect(
            try server.request("PUT", "/v1/metrics/spent", #"{"kind":"total","goal":"buy","cap":50}"#).status == 201)
    }

    private func put(_ body: String) throws {
        let changed = try server.request("PUT", "/v1/experiments/e", body)
        #expect(changed.status < 300, "\(changed.text)")
    }

    /// Decides for users with a country, and returns those of each variation.
    @discardableResult
    private func decide(_ users: Range<Int>, _ attributes: String) throws -> [String: [Int]] {
        var found: [String: [Int]] = [:]
        for user in users {
            let decided = try server.request(
                "POST", "/v1/decide?keys=e", #"{"userId":"\#(user)","userAttributes":{\#(attributes)}}"#,
                fields: ["X-Optimizely-SDK-Key: default", "Content-Type: application/json"])
            found[decided["variationKey"].string ?? decided.text, default: []].append(user)
        }
        // Is stored after the exposures of the decisions, which no response waits for.
        try buy([-1])
        return found
    }

    private func buy(_ users: some Sequence<Int>) throws {
        let body = users.map { #"{"user_id":"\#($0)","goal":"buy","value":10}"# }.joined(separator: ",")
        #expect(try server.request("POST", "/v1/events", "[\(body)]").status == 200)
    }

    private func results(_ query: String) throws -> TestResponse {
        while true {
            let response = try server.request("GET", "/v1/experiments/e/results?\(query)")
            guard response.status == 200, response.json["metric"]["filling"] == true else { return response }
        }
    }

    private func group(_ value: JSONValue, _ response: TestResponse) throws -> JSONValue {
        try #require(response.json["breakdown"]["groups"].array?.first { $0["value"] == value }, "\(response.text)")
    }

    @Test func `Attributes of decisions divide the results of goals and metrics`() throws {
        try put(
            #"{"variations":["control","new"],"metrics":{"primary":["spent"],"breakdowns":["country","plan"]}}"#)
        let german = try decide(0..<500, #""country":"DE","plan":1"#)
        try decide(500..<600, #""country":"FR""#)
        let bare = try decide(600..<610, "")
        try buy((german["control"] ?? []).prefix(40) + (german["new"] ?? []).prefix(200) + (bare["new"] ?? []))
        for query in ["goal=buy&breakdown=country", "metric=spent&breakdown=country", "breakdown=country"] {
            let found = try results(query)
            let breakdown = found.json["breakdown"]
            #expect(breakdown["attribute"] == "country" && breakdown["exploratory"] == true, "\(found.text)")
            #expect(breakdown["users_without_group"] == 0 && breakdown["counts_since"] == .null)
            #expect(breakdown["groups"].array?.map { $0["group"] } == ["none", "value", "value"])
            let de = try group("DE", found)
            let new = try #require(de["variations"].array?.last)
            #expect(de["users"] == 500 && new["outcome"] == "better", "\(new)")
            #expect(new["users"].integer.map { Int($0) } == german["new"]?.count)
            let factor = query == "goal=buy&breakdown=country" ? 1.0 : 10
            let mean = factor * 200 / Double(german["new"]?.count ?? 1)
            #expect(abs((new["mean"].double ?? 0) - mean) < 1e-12)
            // The more comparisons, the wider.
            let alone = found.json["verdict"]["variations"].array?.first
            #expect(
                new["p_value"].double ?? 0 > 0 && alone?["lift_interval"].array?.count == 2
                    && new["lift_interval"].array?.first?.double ?? -1 > 0)
            let none = try group(.null, found)
            #expect(none["users"] == 10 && none["variations"].array?.last?["outcome"] == "uncertain")
        }
        let plans = try results("goal=buy&breakdown=plan")
        #expect(try group("1", plans)["users"] == 500 && group(.null, plans)["users"] == 110)
        let csv = try results("goal=buy&breakdown=country&format=csv").text.split(separator: "\r\n")
        #expect(csv.first?.hasPrefix("breakdown,group,value,experiment_key,goal,variation_key,") == true)
        #expect(csv.count { $0.contains(",conversion,") } == 3 * 2, "\(csv)")
        let line = csv.first { $0.hasPrefix("country,value,DE,e,buy,new,") && $0.contains(",conversion,") }
        #expect(line?.contains(",better,") == true, "\(csv)")
    }

    @Test func `A breakdown that is declared later says since when it counts`() throws {
        try put(#"{"variations":["control","new"]}"#)
        try decide(0..<10, #""country":"DE""#)
        try put(#"{"metrics":{"breakdowns":["country"]}}"#)
        try decide(10..<13, #""country":"DE""#)
        let found = try results("goal=buy&breakdown=country")
        #expect(found.json["breakdown"]["users_without_group"] == 10, "\(found.text)")
        #expect(found.json["breakdown"]["counts_since"].string != nil)
        #expect(try group("DE", found)["users"] == 3)
        try server.request("DELETE", "/v1/profiles/12")
        #expect(try group("DE", results("goal=buy&breakdown=country"))["users"] == 2)
    }

    @Test func `Groups are kept at the conclusion`() throws {
        try put(#"{"variations":["control","new"],"metrics":{"breakdowns":["country"]}}"#)
        try decide(0..<20, #""country":"DE""#)
        try buy(0..<5)
        let before = try results("goal=buy&breakdown=country")
        #expect(try server.request("POST", "/v1/experiments/e/conclude", #"{"winner":"new"}"#).status == 200)
        try buy(5..<20)
        try server.request("DELETE", "/v1/profiles/0")
        let after = try results("goal=buy&breakdown=country")
        #expect(after.json["breakdown"]["groups"] == before.json["breakdown"]["groups"], "\(after.text)")
        let live = try results("goal=buy&breakdown=country&live=true")
        #expect(try group("DE", live)["users"] == 19)
    }

    @Test func `An attribute that is no breakdown is refused`() throws {
        try put(#"{"variations":["control","new"],"metrics":{"breakdowns":["country"]}}"#)
        let misspelt = try results("goal=buy&breakdown=contry")
        #expect(misspelt.status == 422 && misspelt.text.contains("did you mean 'country'"), "\(misspelt.text)")
        #expect(try results("goal=buy&breakdown=country&by=day").status == 400)
        #expect(try server.request("GET", "/v1/experiments/e/results.svg?goal=buy&breakdown=country").status == 400)
    }
}

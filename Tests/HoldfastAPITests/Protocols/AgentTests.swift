import APITestSupport
import JSON
import Testing

/// The API of Optimizely Agent.
@Suite struct AgentTests {
    private let server: any TestServer

    init() throws {
        server = try startTestServer()
    }

    private func putDatafile() throws {
        let response = try server.request("PUT", "/v1/datafile", AgentSamples.datafile, fields: AgentSamples.fields)
        #expect(response.status == 201)
    }

    private func post(_ target: String, _ body: String) throws -> TestResponse {
        try server.request("POST", target, body, fields: AgentSamples.fields)
    }

    /// The variation of the experiment `checkout`.
    private func variation(of user: String) throws -> String? {
        let response = try post("/v1/activate?experimentKey=checkout", #"{"userId":"\#(user)"}"#)
        return response.json.array?.first?["variationKey"].string
    }

    @Test(arguments: ["7-a", ""]) func `A datafile is refused whose ids no profile can hold`(id: String) throws {
        let datafile = AgentSamples.datafile.replacing("\"id\":\"7\"", with: "\"id\":\"\(id)\"")
        let response = try server.request("PUT", "/v1/datafile", datafile, fields: AgentSamples.fields)
        #expect(response.status == 400)
        #expect(response["detail"].string?.contains("checkout") == true)
        server.stop()
    }

    @Test func `What this server does not have is not implemented, as the Agent would say it`() throws {
        try putDatafile()
        let response = try post("/v1/send-odp-event", #"{"action":"any"}"#)
        #expect(response.status == 501)
        #expect(response.json.object?.members.map(\.key) == ["error"])
        server.stop()
    }

    // MARK: Notifications

    /// The notifications of a stream, one after the other.
    private final class Notifications {
        private let stream: any TestStream
        private let (opening, end): (String, String)
        private var text = ""

        init(_ server: any TestServer, _ query: String = "") throws {
            stream = try server.stream(
                "GET", "/v1/notifications/event-stream\(query)", fields: ["X-Optimizely-SDK-Key: tests"])
            #expect(stream.head.status == 200 && stream.head.field("content-type") == "text/event-stream")
            (opening, end) = query.contains("raw") ? ("", "\n") : ("data: ", "\n\n")
        }

        func next() throws -> JSONValue {
            while !text.contains(end) { text += try #require(try stream.receiveChunk()) }
            let event = text.prefix(upTo: try #require(text.firstRange(of: end)).lowerBound)
            #expect(event.hasPrefix(opening))
            text.removeFirst(event.count + end.count)
            return try JSONParser().parse(String(event.dropFirst(opening.count)))
        }
    }

    @Test func `Decisions, goals and new datafiles of the project are notified in the Agent's JSON`() throws {
        try putDatafile()
        let flag = #""featureFlags":[{"id":"5","key":"pay","rolloutId":"","experimentIds":["7"],"variables":[]}]"#
        let attribute = #""attributes":[{"id":"a1","key":"plan"}]"#
        let datafile = AgentSamples.datafile.replacing(#""featureFlags":[]"#, with: flag)
            .replacing(#""attributes":[]"#, with: attribute).replacing(#""revision":"1""#, with: #""revision":"2""#)
        let all = try Notifications(server)
        let raw = try Notifications(server, "?raw=1&filter=decision&filter=project_config_update")
        #expect(try server.request("PUT", "/v1/datafile", datafile, fields: AgentSamples.fields).status == 200)
        #expect(try all.next() == ["Type": "project_config_update", "Revision": "2"])
        let user: JSONValue = ["ID": "ada", "Attributes": ["plan": "pro", "x": 1], "QualifiedSegments": .null]
        let body = #"{"userId":"ada","userAttributes":{"plan":"pro","x":1}}"#
        #expect(try post("/v1/decide?keys=pay", body).status == 200)
        #expect(
            try all.next() == [
                "Type": "flag", "UserContext": user,
                "DecisionInfo": [
                    "decisionEventDispatched": true, "enabled": false, "flagKey": "pay", "reasons": [],
                    "ruleKey": "checkout", "variables": [:], "variationKey": "control",
                ],
            ])
        #expect(try post("/v1/activate?experimentKey=checkout&featureKey=pay", body).status == 200)
        let activated = try [all.next(), all.next()]
        #expect(activated[0]["Type"] == "ab-test")
        #expect(activated[0]["DecisionInfo"] == ["experimentKey": "checkout", "variationKey": "control"])
        #expect(activated[1]["Type"] == "all-feature-variables")
        #expect(
            activated[1]["DecisionInfo"] == [
                "feature": [
                    "featureEnabled": false, "featureKey": "pay", "source": "feature-test",
                    "sourceInfo": ["experimentKey": "checkout", "variationKey": "control"], "variableValues": [:],
                ]
            ])
        let tracked = #"{"userId":"ada","userAttributes":{"plan":"pro","x":1},"eventTags":{"revenue":5}}"#
        #expect(try post("/v1/track?eventKey=purchase", tracked).status == 200)
        let goal: JSONValue = [
            "EventKey": "purchase", "UserContext": user, "EventTags": ["revenue": 5],
            "ConversionEvent": [
                "entity_id": "e1", "key": "purchase",
                "Attributes": [["value": "pro", "key": "plan", "type": "custom", "entity_id": "a1"]],
                "tags": ["revenue": 5], "revenue": 5,
            ],
        ]
        #expect(try all.next() == goal)
        #expect(try raw.next() == goal)
        server.stop()
    }

    @Test func `What was forced for a user is gone when the erasure is answered`() throws {
        try putDatafile()
        for user in (0..<10).map({ "eva\($0)" }) {
            let body = #"{"userId":"\#(user)","experimentKey":"checkout","variationKey":"new"}"#
            #expect(try post("/v1/override", body).status == 200)
            #expect(try server.request("DELETE", "/v1/profiles/\(user)").status == 200)
            #expect(try variation(of: user) == "control")
        }
        server.stop()
    }

    @Test func `A decision that ignores stored assignments uses overrides, and stores nothing`() throws {
        // It gives `control` to everyone.
        let flag = #""featureFlags":[{"id":"5","key":"pay","rolloutId":"","experimentIds":["7"],"variables":[]}]"#
        let datafile = AgentSamples.datafile.replacing(#""featureFlags":[]"#, with: flag)
        #expect(try server.request("PUT", "/v1/datafile", datafile, fields: AgentSamples.fields).status == 201)
        func decide(_ user: String) throws -> JSONValue {
            let body = #"{"userId":"\#(user)","decideOptions":["IGNORE_USER_PROFILE_SERVICE"]}"#
            return try post("/v1/decide?keys=pay", body)["variationKey"]
        }
        #expect(try server.request("POST", "/ups/save", profile("ada", ["7": "72"])).status == 200)
        #expect(try decide("ada") == "control")
        #expect(try variation(of: "ada") == "new")
        #expect(try decide("bob") == "control")
        #expect(try server.request("GET", "/v1/profiles/bob").status == 404)
        #expect(try server.request("PUT", "/v1/profiles/bob/experiments/7", #"{"variation_id":"72"}"#).status == 200)
        #expect(try decide("bob") == "new")
        server.stop()
    }

    @Test func `Each operation of a batch needs its own scope`() throws {
        let tokens = "write app write-secret-0123456789\nadmin on-call admin-secret-0123456789\n"
        let server = try startTestServer(tokens: tokens)
        let admin = "admin-secret-0123456789"
        #expect(
            try server.request("PUT", "/v1/datafile", AgentSamples.datafile, token: admin, fields: AgentSamples.fields)
                .status == 201)
        func batch(_ authorization: String) -> String {
            let headers =
                #"{"X-Optimizely-SDK-Key":"tests","Content-Type":"application/json"\#(authorization)}"#
            return #"""
                {"operations":[{"method":"POST","url":"/v1/override","operationID":"1","headers":\#(headers),
                "body":{"userId":"eva","experimentKey":"checkout"}},
                {"method":"GET","url":"/v1/config","operationID":"2","headers":\#(headers)}]}
                """#
        }
        func statuses(_ body: String, token: String) throws -> [JSONValue] {
            let response = try server.request("POST", "/v1/batch", body, token: token)
            return response["response"].array?.map { $0["status"] } ?? []
        }
        #expect(try statuses(batch(""), token: "write-secret-0123456789") == [403, 200])
        #expect(try statuses(batch(""), token: admin) == [200, 200])
        let own = batch(#","authorization":"Bearer \#(admin)""#)
        #expect(try statuses(own, token: "write-secret-0123456789") == [200, 200])
        #expect(try statuses(batch(#","authorization":"Bearer x""#), token: admin) == [401, 401])
        server.stop()
    }
}

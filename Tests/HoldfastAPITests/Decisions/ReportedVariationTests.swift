import APITestSupport
import Chronology
import JSON
import Storage
import Testing

/// Exposures that name a variation enroll users who have none: a group drawn on a device is kept.
@Suite struct ReportedVariationTests {
    private let server: any TestServer

    init() throws {
        server = try startTestServer()
        let definition =
            #"{"id":"7","variations":[{"key":"control","id":"71","weight":0},{"key":"new","id":"72","weight":1}]}"#
        #expect(try server.request("PUT", "/v1/experiments/checkout", definition).status == 201)
    }

    private func assignment(_ user: String) throws -> JSONValue {
        try server.request("GET", "/v1/profiles/\(user)/experiments/7").json
    }

    private func variation(_ user: String) throws -> JSONValue {
        try server.request("POST", "/v1/assign", #"{"user_id":"\#(user)","experiment":"checkout"}"#)["variation_key"]
    }

    @Test func `The variation of a reported exposure is that of the next decision, in every protocol that reports`()
        throws
    {
        let reports = [
            ("native", "/v1/exposures", #"{"user_id":"native","experiment":"checkout","variation_key":"control"}"#),
            ("id", "/v1/exposures", #"[{"user_id":"id","experiment":"7","variation_id":"71"}]"#),
            (
                "sdk", "/sdk/v1/events",
                #"""
                {"account_id":"1","visitors":[{"visitor_id":"sdk","snapshots":[{"decisions":[{"campaign_id":"8",
                "experiment_id":"7","variation_id":"71"}],"events":[{"entity_id":"8","key":"campaign_activated"}]}]}]}
                """#
            ),
            (
                "bucketeer", "/register_events",
                #"""
                {"events":[{"id":"1","event":{"@type":"type.googleapis.com/bucketeer.event.client.EvaluationEvent",
                "timestamp":\#(systemWallClock().secondsSince1970),"featureId":"checkout","variationId":"71","user":{"id":"bucketeer"},
                "reason":{"type":"RULE"}}}]}
                """#
            ),
        ]
        for (user, route, body) in reports {
            #expect(try server.request("POST", route, body).status < 300, "\(route)")
            #expect(try assignment(user)["source"] == "saved", "\(route)")
            #expect(try variation(user) == "control", "\(route)")
        }
        #expect(try variation("other") == "new")
    }

    @Test func `A late exposure enrolls since the time at which it happened`() throws {
        let timestamp = (systemWallClock() - .hours(1)).rfc3339
        let body =
            #"{"user_id":"ada","experiment":"checkout","variation_key":"control","timestamp":"\#(timestamp)"}"#
        #expect(try server.request("POST", "/v1/exposures", body).text == #"{"status":"stored"}"#)
        #expect(try assignment("ada")["assigned_at"].string == timestamp)
    }

    @Test(arguments: [#"{"enrollment":"closed"}"#, #"{"status":"Paused"}"#, #"{"status":"Archived"}"#])
    func `An experiment that takes nobody new takes nobody by an exposure`(change: String) throws {
        #expect(try server.request("PUT", "/v1/experiments/checkout", change).status == 200)
        let body = #"{"user_id":"ada","experiment":"checkout","variation_key":"control"}"#
        #expect(try server.request("POST", "/v1/exposures", body).text == #"{"status":"stored"}"#)
        #expect(try server.request("GET", "/v1/profiles/ada").status == 404)
    }

    @Test func `An exposure without a variation, and one of a listed user, enroll nobody`() throws {
        let unknown = #"{"user_id":"ada","experiment":"checkout"}"#
        #expect(try server.request("POST", "/v1/exposures", unknown).status == 422)
        #expect(try server.request("GET", "/v1/profiles/ada").status == 404)
    }

    @Test func `Exposures of a server that does not know the newest definitions yet enroll by the newest`() throws {
        let directory = try TemporaryDirectory()
        let (one, other) = (try startTestServer(in: directory), try startTestServer(in: directory))
        for round in 1...20 {
            let body = #"{"id":"7","variations":[{"key":"a","weight":\#(round)},{"key":"b","weight":1}]}"#
            #expect(try one.request("PUT", "/v1/experiments/checkout", body).status < 300)
            let user = "user\(round)"
            let exposure = #"{"user_id":"\#(user)","experiment":"checkout","variation_key":"b"}"#
            #expect(try other.request("POST", "/v1/exposures", exposure).text == #"{"status":"stored"}"#)
            #expect(try one.request("GET", "/v1/profiles/\(user)/experiments/7")["source"] == "saved", "\(round)")
        }
    }
}

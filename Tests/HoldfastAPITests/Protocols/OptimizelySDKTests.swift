import APITestSupport
import Dispatch
import Foundation
import HTTPServer
import JSON
import Testing

/// `/datafiles/{sdk_key}.json` and `/sdk/v1/events`: what Optimizely SDKs ask for and send by themselves. The real SDK
/// is in `PythonClientTests`.
@Suite struct OptimizelySDKTests {
    private let server: any TestServer

    init() throws {
        server = try startTestServer()
        let definition = #"{"id":"7001","variations":[{"key":"control","id":"70011"},{"key":"new","id":"n"}]}"#
        #expect(try server.request("PUT", "/v1/experiments/checkout", definition).status == 201)
    }

    // MARK: The datafile

    @Test func `The datafile is the uploaded one, with an entity tag`() throws {
        let datafile = ChangeSamples.empty(revision: "7", sdkKey: "shop")
        #expect(try server.request("PUT", "/v1/projects/shop").status == 201)
        #expect(try server.request("PUT", "/v1/datafile", datafile).status == 200)
        let response = try server.request("GET", "/datafiles/shop.json")
        #expect(response.status == 200)
        #expect(response.field("content-type") == "application/json")
        #expect(String(decoding: response.body, as: UTF8.self) == datafile)
        let tag = try #require(response.field("etag"))
        #expect(try server.request("GET", "/datafiles/shop.json", fields: ["If-None-Match: \(tag)"]).status == 304)
        #expect(try server.request("HEAD", "/datafiles/shop.json").status == 200)
        server.stop()
    }

    @Test(arguments: ["/datafiles/nope.json", "/datafiles/default", "/datafiles/.json", "/datafiles/default.xml"])
    func `Another path has no datafile`(path: String) throws {
        #expect(try server.request("GET", path).status == 404)
        server.stop()
    }

    /// The date counts seconds, so that of the activation is not told before it can mean only one datafile.
    @Test func `A client that knows only the date sees each of two changes in one second, and gets nothing twice`()
        throws
    {
        let path = "/datafiles/default.json"
        func get(_ date: String) throws -> TestResponse {
            try server.request("GET", path, fields: ["If-Modified-Since: \(date)"])
        }
        try ChangeSamples.put(server, weight: 1)
        let early = try #require(try server.request("GET", path).field("last-modified"))
        #expect(early.hasSuffix("GMT"))
        #expect(try get(early).status == 304)
        try ChangeSamples.put(server, weight: 2)
        #expect(try get(early).status == 200)
        let second = try #require(try server.request("GET", path).field("last-modified"))
        #expect(second != early)

        let deadline = DispatchTime.now() + 60
        var response = try server.request("GET", path)
        while response.field("last-modified") == second, DispatchTime.now() < deadline {
            response = try server.request("GET", path)
        }
        let date = try #require(response.field("last-modified"))
        #expect(date != second)
        #expect(try get(date).status == 304 && get(second).status == 304)
        #expect(try get(date).field("etag") == response.field("etag"))
        #expect(try get("Sun, 06 Nov 1994 08:49:37 GMT").status == 200)
        try ChangeSamples.put(server, weight: 3)
        #expect(try get(date).status == 200 && get(second).status == 200)
        server.stop()
    }

    // MARK: Events

    private func send(_ visitors: String, _ query: String = "", fields: [String] = []) throws -> TestResponse {
        let body = #"{"account_id":"1","project_id":"1","revision":"1","visitors":[\#(visitors)]}"#
        return try server.request("POST", "/sdk/v1/events" + query, body, fields: fields)
    }

    private static func impression(
        _ user: String, experiment: String = #""7001""#, variation: String = #""70011""#, key: String = "control"
    ) -> String {
        #"""
        {"visitor_id":"\#(user)","attributes":[{"entity_id":"5","key":"country","type":"custom","value":"de"}],
        "snapshots":[{"decisions":[{"campaign_id":"c","experiment_id":\#(experiment),"variation_id":\#(variation),
        "metadata":{"flag_key":"f","rule_key":"rule","rule_type":"feature-test","variation_key":"\#(key)"}}],
        "events":[{"entity_id":"c","uuid":"u-\#(user)","key":"campaign_activated"}]}]}
        """#
    }

    private static func conversion(_ user: String, _ event: String) -> String {
        #"{"visitor_id":"\#(user)","attributes":[],"snapshots":[{"events":[\#(event)]}]}"#
    }

    private func lines(_ target: String) throws -> [JSONValue] {
        try server.request("GET", target).text.split(separator: "\n").map { try JSONParser().parse(Array($0.utf8)) }
    }

    @Test func `Impressions are exposures to the variation that they name`() throws {
        let sent = try send(
            [
                Self.impression("ann"), Self.impression("bob", variation: "null", key: "new"),
                Self.impression("cy", experiment: #""9""#, variation: #""91""#),
            ].joined(separator: ","))
        #expect(sent.status == 204, "\(sent.text)")
        #expect(sent.field("x-refused-events") == nil)
        let exposures = try lines("/v1/exposures")
        #expect(exposures.map { $0["experiment_id"] } == ["7001", "7001", "9"])
        #expect(exposures.map { $0["experiment_key"] } == ["checkout", "checkout", "rule"])
        #expect(exposures.map { $0["variation_id"] } == ["70011", "n", "91"])
        #expect(exposures[0]["detail"]["attributes"] == ["country": "de"])
        server.stop()
    }

    /// SDKs send null for an id that is not a decimal number.
    @Test func `An impression of a holdout counts by its key, whatever its id is`() throws {
        let holdout = try server.request("PUT", "/v1/holdouts/all", #"{"share":50}"#)
        #expect(holdout.status == 201, "\(holdout.text)")
        let id = try #require(holdout["id"].string)
        func impression(_ user: String, experiment: String) -> String {
            let metadata = #"{"rule_type":"holdout","rule_key":"all","variation_key":"off"}"#
            let decision =
                #"{"campaign_id":null,"experiment_id":\#(experiment),"variation_id":null,"metadata":\#(metadata)}"#
            let event = #"{"entity_id":null,"key":"campaign_activated"}"#
            return #"{"visitor_id":"\#(user)","snapshots":[{"decisions":[\#(decision)],"events":[\#(event)]}]}"#
        }
        let sent = try send(
            [impression("ann", experiment: "null"), impression("bob", experiment: "\"\(id)\"")].joined(separator: ","))
        #expect(sent.status == 204 && sent.field("x-refused-events") == nil, "\(sent.text)")
        let exposures = try lines("/v1/exposures")
        #expect(exposures.map { $0["user_id"] } == ["ann", "bob"])
        #expect(exposures.allSatisfy { $0["experiment_id"].string == id })
        server.stop()
    }

    @Test func `A batch may have 10 MiB, and be compressed`() throws {
        let visitor = Self.impression("ann")
        func body(_ bytes: Int) -> [UInt8] {
            let padding = String(repeating: " ", count: bytes - visitor.utf8.count - 15)
            return Array(#"{"visitors":[\#(visitor)\#(padding)]}"#.utf8)
        }
        func post(_ body: [UInt8], _ fields: [String] = []) throws -> Int {
            try server.response(to: TestRequest("POST", "/sdk/v1/events", bytes: body, fields: fields)).status
        }
        #expect(try post(body(10 << 20)) == 204)
        #expect(try post(body((10 << 20) + 1)) == 413)
        let compressed = ["Content-Encoding: gzip"]
        #expect(try post(#require(Gzip.compress(body(10 << 20), .fast)), compressed) == 204)
        #expect(try post(#require(Gzip.compress(body((10 << 20) + 1), .fast)), compressed) == 413)
        #expect(try post(body(1_000), compressed) == 400)
        #expect(try lines("/v1/exposures").count == 1)
        #expect(try server.request("POST", "/ups/save", String(repeating: " ", count: 2 << 20)).status == 413)
        server.stop()
    }

    @Test func `However many events activate a decision, it is one exposure, at the first`() throws {
        let (now, day) = (Int64(Date().timeIntervalSince1970) * 1_000, Int64(86_400_000))
        func decision(_ campaign: String, _ experiment: Int) -> String {
            #"{"campaign_id":"\#(campaign)","experiment_id":"\#(experiment)","variation_id":"v"}"#
        }
        func activation(_ campaign: String, _ time: Int64) -> String {
            #"{"entity_id":"\#(campaign)","key":"campaign_activated","timestamp":\#(time)}"#
        }
        let decisions = [decision("a", 1), decision("b", 2), decision("c", 3)]
        let events = [
            activation("a", now), activation("a", now - 2 * day), activation("b", now - day),
            activation("a", now - day),
        ]
        let sent = try send(
            #"""
            {"visitor_id":"ann","snapshots":[{"decisions":[\#(decisions.joined(separator: ","))],
            "events":[\#(events.joined(separator: ","))]}]}
            """#)
        #expect(sent.status == 204)
        #expect(sent.field("x-refused-events") == nil)
        let exposures = try lines("/v1/exposures")
        #expect(exposures.map { $0["experiment_id"] } == ["1", "2"])
        let times = exposures.map { $0["timestamp"].string.flatMap { try? Date($0, strategy: Self.time) } }
        #expect(
            times.map { $0.map { Int64(($0.timeIntervalSince1970 * 1_000).rounded()) } } == [now - 2 * day, now - day])
        server.stop()
    }

    private static let time = Date.ISO8601FormatStyle(includingFractionalSeconds: true)

    @Test func `Every refused event is counted, and a strict sender is told of the first`() throws {
        let visitors = String(repeating: "7,", count: 500) + "7"
        #expect(try send(visitors).field("x-refused-events") == "501")
        #expect(try server.request("GET", "/metrics").text.contains("holdfast_sdk_events_refused_total 501\n"))
        let strict = try send(visitors, fields: ["X-Optimizely-Strict: true"])
        #expect(strict.status == 400)
        #expect(strict["errors"].array.map { (2...100).contains($0.count) } == true)
        server.stop()
    }

    @Test func `A delivery without an experiment is no exposure`() throws {
        for experiment in ["\"\"", "null"] {
            #expect(try send(Self.impression("ann", experiment: experiment)).status == 204)
        }
        #expect(try lines("/v1/exposures").isEmpty)
        server.stop()
    }

    @Test func `Conversions are goals, each uuid once`() throws {
        let event = #"{"entity_id":"6","uuid":"1","key":"purchase","revenue":4990,"value":49.9,"tags":{"shop":"de"}}"#
        for _ in 0..<2 { #expect(try send(Self.conversion("ann", event)).status == 204) }
        #expect(try send(Self.conversion("ann", #"{"uuid":"2","key":"purchase","revenue":4990}"#)).status == 204)
        let goals = try lines("/v1/events")
        #expect(goals.map { $0["id"] } == ["1", "2"])
        #expect(goals.map { $0["value"].double } == [49.9, 4990])
        #expect(goals[0]["detail"]["tags"] == ["shop": "de"])
        #expect(goals[0]["detail"]["revenue"] == 4990)
        #expect(goals[0]["detail"]["event_id"] == "6")
        server.stop()
    }

    /// The SDKs leave out `value` and `revenue` of an event whose tags have no number.
    @Test(arguments: [
        (#"{"value":"49.90"}"#, 49.9, nil), (#"{"revenue":"4990"}"#, 4990, nil),
        (#"{"value":null,"revenue":5}"#, 5, nil),
        (#"{"value":"$49.90"}"#, 0, "/tags/value"), (#"{"revenue":"49.90"}"#, 0, "/tags/revenue"),
        (#"{"value":true,"revenue":4990}"#, 4990, "/tags/value"), (#"{"value":1e20}"#, 0, "/tags/value"),
        (#"{"value":["a"],"revenue":{}}"#, 0, "/tags/value"),
    ])
    func `A tag that is no amount is ignored as by the SDKs, which shows`(
        tags: String, value: Double, fault: String?
    ) throws {
        let visitor = Self.conversion("ann", #"{"key":"purchase","tags":\#(tags)}"#)
        let sent = try send(visitor)
        #expect(sent.status == 204 && sent.field("x-ignored-amounts") == fault.map { _ in "1" })
        #expect(sent.field("x-refused-events") == nil)
        let strict = try send(visitor, fields: ["X-Optimizely-Strict: true"])
        #expect(strict.status == (fault == nil ? 204 : 400), "\(strict.text)")
        #expect(strict["pointer"].string == fault.map { "/visitors/0/snapshots/0/events/0\($0)" })
        let tracked = try server.request(
            "POST", "/v1/track?eventKey=purchase", #"{"userId":"bob","eventTags":\#(tags)}"#,
            fields: ["X-Optimizely-SDK-Key: default", "Content-Type: application/json"])
        #expect(tracked.status == 200)
        let error = tracked["error"].string
        #expect((error == nil) == (fault == nil), "\(tracked.text)")
        #expect(error?.hasSuffix("; the event counts without it") ?? true, "\(tracked.text)")
        let goals = try lines("/v1/events")
        #expect(goals.count == (fault == nil ? 3 : 2) && goals.allSatisfy { $0["value"].double == value }, "\(goals)")
        let count = fault == nil ? 0 : 2
        #expect(try server.request("GET", "/metrics").text.contains("holdfast_sdk_amounts_ignored_total \(count)\n"))
        server.stop()
    }

    private static let bad = [
        "7", #"{"snapshots":[]}"#, #"{"visitor_id":"","snapshots":[]}"#, #"{"visitor_id":"x","snapshots":7}"#,
        #"{"visitor_id":"x","snapshots":[7]}"#, conversion("x", "7"), conversion("x", "{}"),
        conversion("x", #"{"key":"g","timestamp":1}"#), conversion("x", #"{"key":"g","timestamp":"now"}"#),
        conversion("x", #"{"key":"g","value":"$5"}"#), conversion("x", #"{"key":"g","revenue":true}"#),
        conversion("x", #"{"key":"g","value":1e20}"#),
        conversion("x", #"{"key":"g","uuid":7}"#), impression("x", variation: "null", key: "nope"),
    ]

    @Test(arguments: bad)
    func `One bad event loses no good one`(visitor: String) throws {
        let sent = try send([Self.conversion("ann", #"{"key":"g"}"#), visitor].joined(separator: ","))
        #expect(sent.status == 204, "\(sent.text)")
        #expect(sent.field("x-refused-events") == "1")
        #expect(try lines("/v1/events").map { $0["user_id"] } == ["ann"])
        #expect(try server.request("GET", "/metrics").text.contains("holdfast_sdk_events_refused_total 1\n"))
        server.stop()
    }

    @Test(arguments: bad)
    func `A strict sender is told what is wrong, and nothing is stored`(visitor: String) throws {
        let sent = try send(
            [Self.conversion("ann", #"{"key":"g"}"#), visitor].joined(separator: ","),
            fields: ["X-Optimizely-Strict: true"])
        #expect(sent.status == 400)
        #expect(sent["pointer"].string?.hasPrefix("/visitors/1") == true, "\(sent.text)")
        #expect(try lines("/v1/events").isEmpty)
        server.stop()
    }

    @Test(arguments: [
        ("", 400), ("{", 400), ("[]", 400), ("{}", 400), (#"{"visitors":7}"#, 400), (#"{"visitors":[]}"#, 204),
    ])
    func `A body that is no batch is refused`(body: String, status: Int) throws {
        #expect(try server.request("POST", "/sdk/v1/events", body).status == status)
        server.stop()
    }

    @Test func `An event that happens later counts as happening now, because a phone's clock may be wrong`() throws {
        #expect(try send(Self.conversion("ann", #"{"key":"g","timestamp":4102444800000}"#)).status == 204)
        #expect(try lines("/v1/events").first?["timestamp"].string?.hasPrefix("21") == false)
        server.stop()
    }

    @Test func `The project is that of the SDK key, or that of the project id`() throws {
        for key in ["a", "b"] {
            let datafile = AgentSamples.datafile.replacing(#""projectId":"2""#, with: #""projectId":"\#(key)""#)
            #expect(try server.request("PUT", "/v1/projects/\(key)").status == 201)
            #expect(
                try server.request(
                    "PUT", "/v1/datafile?share=allow", datafile, fields: ["X-Optimizely-SDK-Key: \(key)"]
                ).status == 200)
        }
        let impression = Self.impression("ann", experiment: #""7""#, variation: #""71""#)
        #expect(try send(impression, "?sdk_key=b").status == 204)
        #expect(try lines("/v1/exposures").map { $0["sdk_key"] } == ["b"])
        let body = #"{"project_id":"a","visitors":[\#(Self.conversion("ann", #"{"key":"g"}"#))]}"#
        #expect(try server.request("POST", "/sdk/v1/events", body).status == 204)
        #expect(try lines("/v1/events").map { $0["sdk_key"] } == ["a"])
        #expect(try send(impression, "?sdk_key=nope").status == 404)
        #expect(try send(impression, "?sdkKey=b").status == 400)
        server.stop()
    }

    @Test func `Thousands of events of one request are stored`() throws {
        let events = (0..<1_700).map { #"{"key":"g","uuid":"\#($0)"}"# }
        #expect(try send(Self.conversion("ann", events.joined(separator: ","))).status == 204)
        #expect(try lines("/v1/events").count == 1_700)
        server.stop()
    }
}

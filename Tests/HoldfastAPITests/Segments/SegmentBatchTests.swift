import APITestSupport
import Foundation
import JSON
import Testing

/// `POST /segment/v1/batch`. The real libraries are in `PythonClientTests`.
@Suite struct SegmentBatchTests {
    private let server: any TestServer

    init() throws {
        server = try startTestServer()
        let definition = #"{"variations":["control","new"]}"#
        #expect(try server.request("PUT", "/v1/experiments/checkout", definition).status == 201)
    }

    private func send(_ messages: String, _ fields: [String] = [], sentAt: String? = nil) throws -> TestResponse {
        let sentAt = sentAt.map { #","sentAt":"\#($0)""# } ?? ""
        return try server.request("POST", "/segment/v1/batch", "{\"batch\":[\(messages)]\(sentAt)}", fields: fields)
    }

    private static func viewed(_ user: String, _ names: String) -> String {
        #"{"type":"track","event":"Experiment Viewed","userId":"\#(user)","properties":{\#(names)}}"#
    }

    private func users(goal: String = "Order Completed") throws -> [Int?] {
        let results = try server.request(
            "GET", "/v1/experiments/checkout/results?goal=\(goal.replacing(" ", with: "%20"))")
        #expect(results.status == 200, "\(results.text)")
        return (results["variations"].array ?? []).map { $0["users"].integer.map { Int($0) } }
    }

    @Test func `Views are exposures by ids or names, and tracks goals that count once`() throws {
        let id = try #require(try server.request("GET", "/v1/experiments/checkout")["id"].string)
        let response = try send(
            """
            \(Self.viewed("ann", #""experiment_id":"checkout","variation_id":"new""#)),
            \(Self.viewed("bob", #""experiment_id":"\#(id)","variation_name":"control""#)),
            \(Self.viewed("cy", #""experiment_id":17,"experiment_name":"checkout","variant_name":"new""#)),
            {"type":"track","event":"Order Completed","anonymousId":"ann","userId":"","messageId":"m1",
             "properties":{"revenue":49.5,"coupon":"x"}},
            {"type":"track","event":"Order Completed","userId":"ann","messageId":"m1","properties":{"revenue":49.5}},
            {"type":"identify","userId":"ann","traits":{"plan":"pro"}}
            """)
        #expect(response.status == 200 && response["success"] == true, "\(response.text)")
        #expect(response.field("x-refused-events") == nil)
        #expect(try users() == [1, 2])
        let events = try server.request("GET", "/v1/events")
        #expect(events["user_id"] == "ann" && events["value"] == 49.5 && events["id"] == "m1", "\(events.text)")
        #expect(events["detail"]["tags"]["coupon"] == "x")
        // A view enrolls, as any exposure that names a variation.
        let profile = try server.request("GET", "/v1/profiles/bob?detail=true")
        #expect(profile["experiment_bucket_map"][id]["source"] == "saved", "\(profile.text)")
        server.stop()
    }

    @Test func `The sender's clock is corrected by the time of sending`() throws {
        let sent = Date.now.addingTimeInterval(-30 * 86_400)
        let style = Date.ISO8601FormatStyle(includingFractionalSeconds: true)
        let happened = sent.addingTimeInterval(-3_600).formatted(style)
        let message = #"{"type":"track","event":"late","userId":"ann","timestamp":"\#(happened)"}"#
        #expect(try send(message, ["X-Strict-Mode: 1"]).status == 400)
        #expect(try send(message, ["X-Strict-Mode: 1"], sentAt: sent.formatted(style)).status == 200)
        let stored = try #require(try server.request("GET", "/v1/events")["timestamp"].string)
        let age = try Date.now.timeIntervalSince(Date(stored, strategy: style))
        #expect((3_600..<3_700).contains(age))
        server.stop()
    }

    @Test(arguments: [
        (#""49.90""#, 49.9), (#"" 49.90\n""#, 49.9), (#""-1e3""#, -1_000), ("0", 0), ("null", 0), (#""0""#, 0),
    ])
    func `An amount may be sent as text that is a number`(amount: String, value: Double) throws {
        let message = #"{"type":"track","event":"buy","userId":"ann","properties":{"revenue":\#(amount)}}"#
        let response = try send(message, ["X-Strict-Mode: 1"])
        #expect(response.status == 200, "\(response.text)")
        #expect(try server.request("GET", "/v1/events")["value"].double == value)
        server.stop()
    }

    @Test(arguments: [
        ("true", "got a boolean"), (#""$49.90""#, "got '$49.90'"), (#""""#, "got ''"), (#""+5""#, "got '+5'"),
        (#""1,50""#, "got '1,50'"), (#""0x10""#, "got '0x10'"), (#""NaN""#, "got 'NaN'"), (#""[1]""#, "got '[1]'"),
        ("1e20", "between 1e-15 and 1e15 in magnitude; got 1e+20"), (#""1e20""#, "between 1e-15 and 1e15"),
        ("{}", "got an object"), (#""1 2""#, "got '1 2'"),
    ])
    func `An amount that is no number is never counted as 0`(amount: String, reason: String) throws {
        for name in ["value", "revenue"] {
            let message = #"{"type":"track","event":"buy","userId":"ann","properties":{"\#(name)":\#(amount)}}"#
            let strict = try send(message, ["X-Strict-Mode: 1"])
            let text = strict["message"].string ?? ""
            #expect(strict.status == 400 && text.contains(reason), "\(text)")
            #expect(
                text.hasPrefix("`\(name)` must be ") && text.hasSuffix(", at /batch/0/properties/\(name)"), "\(text)")
            #expect(try send(message).field("x-refused-events") == "1")
        }
        #expect(try server.request("GET", "/v1/events").body.isEmpty)
        #expect(try server.request("GET", "/metrics").text.contains("holdfast_sdk_events_refused_total 2\n"))
        server.stop()
    }

    @Test(arguments: [
        (#"{"type":"track","event":"a"}"#, "/batch/0", "`userId` or `anonymousId` is required"),
        (#"{"type":"track","userId":"ann"}"#, "/batch/0/event", "`event` is required"),
        (#"{"userId":"ann"}"#, "/batch/0/type", "`type` is required"),
        (#""track""#, "/batch/0", "a message must be an object; got a string"),
        (#"{"type":"track","event":"a","userId":"ann","timestamp":"yesterday"}"#, "/batch/0/timestamp", "RFC 3339"),
        (#"{"type":"track","event":"a","userId":"ann","messageId":""}"#, "/batch/0/messageId", "1 to 128 bytes"),
        (viewed("ann", #""experiment_id":"nope""#), "/batch/0/properties/experiment_id", "got 'nope'"),
        (
            viewed("ann", #""experiment_id":"checkout","variation_id":"old""#), "/batch/0/properties/variation_id",
            "must be one of 'checkout': control, new"
        ),
    ])
    func `An unusable message is left out, or refuses the batch`(message: String, place: String, reason: String) throws
    {
        let good = #"{"type":"track","event":"kept","userId":"ann"}"#
        let strict = try send("\(message),\(good)", ["X-Strict-Mode: 1"])
        let text = strict["message"].string ?? ""
        #expect(strict.status == 400 && strict["success"] == false && strict["code"] == 400, "\(strict.text)")
        #expect(text.contains(reason) && text.hasSuffix(", at \(place)"), "\(text)")
        #expect(try server.request("GET", "/v1/events").body.isEmpty)
        let response = try send("\(message),\(good)")
        #expect(response.status == 200 && response.field("x-refused-events") == "1")
        #expect(try server.request("GET", "/v1/events")["goal"] == "kept")
        server.stop()
    }

    @Test(arguments: [("[]", "a batch must be an object"), ("{}", "`batch` must be an array"), ("{", "JSON")])
    func `A body that is no batch is refused`(body: String, reason: String) throws {
        let response = try server.request("POST", "/segment/v1/batch", body)
        #expect(response.status == 400 && response["message"].string?.contains(reason) == true, "\(response.text)")
        #expect(try server.request("GET", "/segment/v1/nope")["success"] == false)
        server.stop()
    }

    @Test func `A body that is not whole gzip is refused, and other codings are`() throws {
        func post(_ coding: String) throws -> TestResponse {
            try server.request(
                "POST", "/segment/v1/batch", #"{"batch":[]}"#, fields: ["Content-Encoding: \(coding)"])
        }
        #expect(
            try post("gzip").status == 400 && post("gzip")["message"] == "the body must be whole and compressed by gzip"
        )
        #expect(try post("br").status == 415 && post("br").field("accept-encoding") == "gzip")
        #expect(try post("identity").status == 200)
        server.stop()
    }

    @Test func `The write key is the secret of a token`() throws {
        let server = try startTestServer(tokens: "client app secret-of-the-app-0123456789\n")
        func status(_ authorization: String) throws -> Int {
            try server.request(
                "POST", "/segment/v1/batch", #"{"batch":[]}"#, fields: ["Authorization: \(authorization)"]
            )
            .status
        }
        let key = Data("secret-of-the-app-0123456789:".utf8).base64EncodedString()
        #expect(try status("Basic \(key)") == 200)
        #expect(try status("basic \(key)") == 200)
        #expect(try status("Bearer secret-of-the-app-0123456789") == 200)
        for wrong in [
            "Basic", "Basic ", "Basic !", "Basic \(key.dropLast())", "Basic \(Data("x:".utf8).base64EncodedString())",
        ] {
            let response = try server.request(
                "POST", "/segment/v1/batch", #"{"batch":[]}"#, fields: ["Authorization: \(wrong)"])
            #expect(response.status == 401 && response["success"] == false, "\(wrong): \(response.text)")
        }
        server.stop()
    }
}

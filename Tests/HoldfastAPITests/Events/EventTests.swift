import APITestSupport
import JSON
import Testing

/// Exposures and goal events.
@Suite struct EventTests {
    private let server: any TestServer

    init() throws {
        server = try startTestServer()
        let definition = #"{"id":"7","variations":[{"key":"control","id":"71"},{"key":"new","id":"72"}]}"#
        #expect(try server.request("PUT", "/v1/experiments/checkout", definition).status == 201)
    }

    private func lines(_ target: String) throws -> [JSONValue] {
        let response = try server.request("GET", target)
        #expect(response.status == 200)
        return try response.text.split(separator: "\n").map { try JSONParser().parse(Array($0.utf8)) }
    }

    private func metric(_ name: String) throws -> Double? {
        let line = try server.request("GET", "/metrics").text.split(separator: "\n").first { $0.hasPrefix("\(name) ") }
        return line?.split(separator: " ").last.flatMap { Double($0) }
    }

    @Test func `An event is stored once, whatever else is repeated`() throws {
        let event = #"{"id":"order-1","user_id":"ada","goal":"purchase","value":9.5,"tags":{"shop":"de"}}"#
        #expect(try server.request("POST", "/v1/events", event).text == #"{"id":"order-1","status":"stored"}"#)
        #expect(try server.request("POST", "/v1/events", event).text == #"{"id":"order-1","status":"repeated"}"#)
        let exposure = #"{"user_id":"ada","experiment":"checkout","variation_key":"new"}"#
        #expect(try server.request("POST", "/v1/exposures", exposure).text == #"{"status":"stored"}"#)
        #expect(try server.request("POST", "/v1/exposures", exposure).text == #"{"status":"repeated"}"#)
        #expect(try lines("/v1/events").map { $0["value"] } == [9.5])
        #expect(try lines("/v1/exposures").map { $0["variation_id"] } == ["72"])
    }

    @Test(arguments: [
        (1000, 0.1, 100.0), (300, 19.99, 5997.0), (700, 0.000_001, 0.0007), (90, 999_999.99, 89_999_999.1),
    ])
    func `Amounts of one user add up exactly, and refunds leave nothing`(
        count: Int, value: Double, sum: Double
    ) throws {
        let exposure = #"{"user_id":"ada","experiment":"checkout","variation_key":"new"}"#
        #expect(try server.request("POST", "/v1/exposures", exposure).status == 200)
        func total(_ value: Double) throws -> Double? {
            let event = #"{"user_id":"ada","goal":"purchase","value":\#(value)}"#
            let events = repeatElement(event, count: count).joined(separator: ",")
            #expect(try server.request("POST", "/v1/events", "[\(events)]").status == 200)
            let results = try server.request("GET", "/v1/experiments/checkout/results?goal=purchase&by=day")
            return results["days"].array?.first?["variations"].array?.last?["value"].double
        }
        #expect(try total(value) == sum)
        #expect(try total(value) == 2 * sum)
        #expect(try total(-value) == sum)
    }

    @Test func `The events of one user are read in pages, the last first`() throws {
        for user in ["ada", "bob"] {
            let exposure = #"{"user_id":"\#(user)","experiment":"checkout","variation_key":"new"}"#
            #expect(try server.request("POST", "/v1/exposures", exposure).status == 200)
        }
        for value in 1...5 {
            let event = #"[{"user_id":"ada","goal":"purchase","value":\#(value)},{"user_id":"bob","goal":"signup"}]"#
            #expect(try server.request("POST", "/v1/events", event).status == 200)
        }
        let exposures = try server.request("GET", "/v1/profiles/ada/exposures")
        #expect(exposures["exposures"].array?.map { $0["experiment_key"] } == ["checkout"])
        #expect(exposures["next"] == .null)
        #expect(try lines("/v1/exposures").first == exposures["exposures"].array?.first)
        var values: [Double] = []
        var next: JSONValue? = 999
        while let after = next?.integer {
            let page = try server.request("GET", "/v1/profiles/ada/events?limit=2&after=\(after)")
            values += page["events"].array?.compactMap { $0["value"].double } ?? []
            next = page["next"]
        }
        #expect(values == [5, 4, 3, 2, 1])
        #expect(try server.request("GET", "/v1/profiles/nobody/events").text == #"{"events":[],"next":null}"#)
        for query in ["limit=0", "limit=1001", "after=0", "after=x", "before=1"] {
            #expect(try server.request("GET", "/v1/profiles/ada/events?\(query)").status == 400, "\(query)")
        }
    }

    @Test func `The goals that users of an experiment reached are listed`() throws {
        let exposure = #"{"user_id":"ada","experiment":"checkout","variation_key":"new"}"#
        #expect(try server.request("POST", "/v1/exposures", exposure).status == 200)
        for (user, goal) in [("ada", "signup"), ("ada", "purchase"), ("bob", "other")] {
            #expect(
                try server.request("POST", "/v1/events", #"{"user_id":"\#(user)","goal":"\#(goal)"}"#).status == 200)
        }
        let found = try server.request("GET", "/v1/experiments/checkout/goals")
        #expect(found.text == #"{"goals":["purchase","signup"]}"#)
        #expect(try server.request("GET", "/v1/experiments/checkout/goals?limit=1")["goals"] == ["purchase"])
        #expect(try server.request("GET", "/v1/experiments/checkout/goals?limit=none").status == 400)
        #expect(try server.request("GET", "/v1/experiments/absent/goals").status == 404)
    }

    @Test func `Each event of a batch is answered on its own`() throws {
        let batch = #"""
            [{"id":"1","user_id":"ada","goal":"purchase"},{"id":"1","user_id":"ada","goal":"purchase"},
            {"user_id":"ada"},7,{"user_id":"ada","goal":"g","value":"9"},{"user_id":"ada","goal":"g","timestamp":"2020-01-01T00:00:00Z"},
            {"user_id":"ada","goal":"g","timestamp":"2999-01-01T00:00:00Z"},{"user_id":"bob","goal":"g"}]
            """#
        let results = try server.request("POST", "/v1/events", batch)["results"].array ?? []
        #expect(
            results.map { $0["status"] } == [
                "stored", "repeated", "refused", "refused", "refused", "refused", "refused", "stored",
            ])
        #expect(results.map { $0["index"] } == (0..<8).map { .integer($0) })
        #expect(results[2]["problem"]["status"] == 400)
        #expect(results[2]["problem"]["detail"] == "`goal` is required")
        #expect(results[2]["problem"]["pointer"] == "/2/goal")
        #expect(results[2]["retriable"] == false)
        #expect(try lines("/v1/events").count == 2)
    }

    @Test func `An exposure without a variation is one to the variation that the user has`() throws {
        func post(_ user: String) throws -> TestResponse {
            try server.request("POST", "/v1/exposures", #"{"user_id":"\#(user)","experiment":"7"}"#)
        }
        #expect(try post("ada").status == 422)
        #expect(try server.request("POST", "/v1/assign", #"{"user_id":"ada","experiment":"checkout"}"#).status == 200)
        #expect(try post("ada").text == #"{"status":"stored"}"#)
        let override = try server.request("PUT", "/v1/profiles/bob/experiments/7", #"{"variation_id":"72"}"#)
        #expect(override.status == 200)
        #expect(try post("bob").text == #"{"status":"stored"}"#)
        #expect(try lines("/v1/exposures").map { $0["forced"] } == [false, true])
    }

    @Test(arguments: [
        (#"{"user_id":"u","experiment":"nope"}"#, 404, "/experiment"),
        (#"{"user_id":"u","experiment":"checkout","variation_key":"nope"}"#, 422, "/variation_key"),
        (#"{"user_id":"u","experiment":"checkout","variation_key":"new","variation_id":"72"}"#, 400, "/variation_key"),
        (#"{"experiment":"checkout","variation_key":"new"}"#, 400, "/user_id"),
        (#"{"user_id":"u","experiment":"checkout","variation_key":"new","timestamp":"yesterday"}"#, 400, "/timestamp"),
        (#"{"user_id":"u","experiment":"checkout","sdk_key":"nope"}"#, 404, nil),
    ])
    func `An exposure that cannot be counted is refused, with the place`(body: String, status: Int, pointer: String?)
        throws
    {
        let response = try server.request("POST", "/v1/exposures", body)
        #expect(response.status == status)
        #expect(response["pointer"].string == pointer)
        #expect(try lines("/v1/exposures").isEmpty)
    }

    @Test func `A user who stays in one variation costs decisions no write`() throws {
        let fields = ["X-Optimizely-SDK-Key: default", "Content-Type: application/json"]
        func activate() throws {
            let target = "/v1/activate?experimentKey=checkout"
            #expect(try server.request("POST", target, #"{"userId":"ada"}"#, fields: fields).status == 200)
        }
        try activate()
        while try lines("/v1/exposures").isEmpty {}
        let commits = try metric("holdfast_store_commits_total")
        for _ in 0..<20 { try activate() }
        #expect(try server.request("POST", "/v1/assign", #"{"user_id":"ada","experiment":"checkout"}"#).status == 200)
        #expect(try metric("holdfast_store_commits_total") == commits)
        #expect(try lines("/v1/exposures").count == 1)
    }

    @Test func `An export is resumed behind a line, and an exposure that changes comes again`() throws {
        for index in 0..<5 {
            let event = #"{"user_id":"u\#(index)","goal":"g","value":\#(index)}"#
            #expect(try server.request("POST", "/v1/events", event).status == 200)
        }
        let first = try lines("/v1/events?limit=2")
        let cursor = try #require(first.last?["cursor"].integer)
        #expect(try lines("/v1/events?after=\(cursor)").map { $0["value"].double } == [2, 3, 4])
        func expose(_ variation: String) throws {
            let body = #"{"user_id":"ada","experiment":"checkout","variation_key":"\#(variation)"}"#
            #expect(try server.request("POST", "/v1/exposures", body).status == 200)
        }
        try expose("new")
        let before = try #require(try lines("/v1/exposures").last?["cursor"].integer)
        try expose("control")
        #expect(try lines("/v1/exposures?after=\(before)").map { $0["multiple_variations"] } == [true])
    }

    @Test func `Erasing a user leaves nothing to export, and the user may begin anew`() throws {
        let fields = ["X-Optimizely-SDK-Key: default", "Content-Type: application/json"]
        for _ in 0..<2 {
            let activated = try server.request(
                "POST", "/v1/activate?experimentKey=checkout", #"{"userId":"ada"}"#, fields: fields)
            #expect(activated.status == 200)
            #expect(
                try server.request("POST", "/v1/events", #"{"id":"1","user_id":"ada","goal":"g"}"#)["status"]
                    == "stored")
            #expect(try lines("/v1/exposures").count == 1)
            #expect(try server.request("DELETE", "/v1/profiles/ada").status == 200)
            #expect(try lines("/v1/exposures").isEmpty)
            #expect(try lines("/v1/events").isEmpty)
        }
    }
}

import APITestSupport
import JSON
import Testing

/// Metrics as a project defines them, and what experiments measure.
@Suite struct MetricTests {
    private let server: any TestServer

    init() throws {
        server = try startTestServer()
        #expect(
            try server.request("PUT", "/v1/experiments/checkout", #"{"variations":["control","new"]}"#).status == 201)
    }

    private func put(_ key: String, _ body: String) throws -> TestResponse {
        try server.request("PUT", "/v1/metrics/\(key)", body)
    }

    private static let valid: [(key: String, body: String)] = [
        ("buyers", #"{"kind":"conversion","goal":"purchase","window":7}"#),
        ("orders", #"{"kind":"count","goal":"purchase"}"#),
        ("revenue", #"{"kind":"total","goal":"purchase","cap":500.5,"minimum_effect":0.02,"unit":"EUR"}"#),
        ("order_value", #"{"kind":"mean","goal":"purchase","unit":"items per order"}"#),
        (
            "per_visit",
            #"{"kind":"ratio","numerator":{"goal":"purchase","by":"value"},"denominator":{"goal":"visit","by":"count"}}"#
        ),
        ("back", #"{"kind":"retention","goal":"visit","from":1,"to":7.5}"#),
        ("funnel", #"{"kind":"funnel","goals":["cart","pay","purchase"],"window":1}"#),
        ("errors", #"{"kind":"count","goal":"error","direction":"decrease","description":"Crashes"}"#),
        ("visits", #"{"kind":"count","goal":"visit","cap":20,"adjustment":{"days":60}}"#),
        ("order_cap", #"{"kind":"mean","goal":"purchase","cap":300}"#),
        ("sure", #"{"kind":"conversion","goal":"purchase","adjustment":{"days":1}}"#),
        ("loyal", #"{"kind":"retention","goal":"visit","from":1,"to":7,"adjustment":{"attribute":"orders"}}"#),
        ("plain", #"{"kind":"total","goal":"purchase","adjustment":"none"}"#),
    ]

    @Test(arguments: valid)
    func `A metric of each kind is stored as it was given, and what GET returns changes nothing`(
        key: String, body: String
    ) throws {
        let created = try put(key, body)
        #expect(created.status == 201, "\(created.text)")
        for member in try JSONParser().parse(body).object ?? JSONObject() {
            #expect(created[member.key] == member.value, "\(created.text)")
        }
        let read = try server.request("GET", "/v1/metrics/\(key)")
        #expect(read.json == created.json)
        let again = try put(key, read.text)
        #expect(again.status == 200 && again["revision"] == read["revision"], "\(again.text)")
        #expect(try server.request("GET", "/datafiles/default.json").text.contains(key) == false)
        let entry = try server.request("GET", "/v1/audit")["entries"].array?.first
        #expect(entry?["action"] == "metric.put" && entry?["after"]["metric"]["key"].string == key)
        #expect(try server.request("DELETE", "/v1/metrics/\(key)").status == 204)
        #expect(try server.request("GET", "/v1/metrics/\(key)").status == 404)
    }

    @Test func `A change keeps the members that are absent, and a new kind drops those that it does not have`() throws {
        _ = try put("m", #"{"kind":"total","goal":"purchase","cap":5,"window":3,"direction":"decrease","unit":"EUR"}"#)
        let changed = try put("m", #"{"cap":null}"#)
        #expect(changed["cap"] == .null && changed["window"] == 3 && changed["direction"] == "decrease")
        let other = try put("m", #"{"kind":"funnel","goals":["a","b"]}"#)
        #expect(other.status == 200 && other["window"] == 3 && other["direction"] == "decrease", "\(other.text)")
        #expect(other.json.object?["goal"] == nil && other.json.object?["cap"] == nil)
        #expect(other.json.object?["unit"] == nil)
        let list = try server.request("GET", "/v1/metrics?q=b")
        #expect(list["metrics"].array?.count == 1)
    }

    @Test(arguments: [
        (#"{}"#, "/kind"), (#"{"kind":"median","goal":"a"}"#, "/kind"), (#"{"kind":3}"#, "/kind"),
        (#"{"kind":"count"}"#, "/goal"), (#"{"kind":"count","goal":""}"#, "/goal"),
        (#"{"kind":"conversion","goal":"a","cap":3}"#, "/cap"),
        (#"{"kind":"mean","goal":"a","adjustment":"none"}"#, "/adjustment"),
        (#"{"kind":"funnel","goals":["a","b"],"adjustment":{"days":3}}"#, "/adjustment"),
        (#"{"kind":"count","goal":"a","adjustment":"days"}"#, "/adjustment"),
        (#"{"kind":"count","goal":"a","adjustment":{}}"#, "/adjustment"),
        (#"{"kind":"count","goal":"a","adjustment":{"days":3,"attribute":"b"}}"#, "/adjustment"),
        (#"{"kind":"count","goal":"a","adjustment":{"days":0}}"#, "/adjustment/days"),
        (#"{"kind":"count","goal":"a","adjustment":{"days":61}}"#, "/adjustment/days"),
        (#"{"kind":"count","goal":"a","adjustment":{"days":1.5}}"#, "/adjustment/days"),
        (#"{"kind":"count","goal":"a","adjustment":{"attribute":""}}"#, "/adjustment/attribute"),
        (#"{"kind":"count","goal":"a","adjustment":{"weeks":1}}"#, "/adjustment/weeks"),
        (#"{"kind":"count","goal":"a","goals":["a"]}"#, "/goals"),
        (#"{"kind":"total","goal":"a","cap":0}"#, "/cap"), (#"{"kind":"total","goal":"a","cap":-1}"#, "/cap"),
        (#"{"kind":"total","goal":"a","cap":"1"}"#, "/cap"), (#"{"kind":"count","goal":"a","window":0}"#, "/window"),
        (#"{"kind":"count","goal":"a","window":3651}"#, "/window"),
        (#"{"kind":"retention","goal":"a","from":7,"to":7}"#, "/from"),
        (#"{"kind":"retention","goal":"a","from":8,"to":7}"#, "/from"),
        (#"{"kind":"retention","goal":"a","to":7}"#, "/from"),
        (#"{"kind":"retention","goal":"a","from":-1,"to":7}"#, "/from"),
        (#"{"kind":"retention","goal":"a","from":0,"to":7,"window":3}"#, "/window"),
        (#"{"kind":"funnel","goals":["a"]}"#, "/goals"), (#"{"kind":"funnel"}"#, "/goals"),
        (#"{"kind":"funnel","goals":["a","b","c","d","e","f","g","h","i","j","k"]}"#, "/goals"),
        (#"{"kind":"funnel","goals":["a","a"]}"#, "/goals/1"), (#"{"kind":"funnel","goals":["a",1]}"#, "/goals/1"),
        (#"{"kind":"ratio","numerator":{"goal":"a","by":"value"}}"#, "/denominator"),
        (
            #"{"kind":"ratio","numerator":{"goal":"a"},"denominator":{"goal":"a","by":"count"}}"#,
            "/numerator/by"
        ),
        (#"{"kind":"count","goal":"a","direction":"up"}"#, "/direction"),
        (#"{"kind":"count","goal":"a","minimum_effect":0}"#, "/minimum_effect"),
        (#"{"kind":"conversion","goal":"a","unit":"EUR"}"#, "/unit"),
        (#"{"kind":"funnel","goals":["a","b"],"unit":""}"#, "/unit"),
        (#"{"kind":"total","goal":"a","unit":3}"#, "/unit"),
        (#"{"kind":"total","goal":"a","unit":"123456789012345678901234567890123"}"#, "/unit"),
        (#"{"kind":"count","goal":"a","extra":1}"#, "/extra"), (#"{"kind":"count","goal":"a","key":"n"}"#, "/key"),
    ])
    func `A wrong definition is refused with the place of what is wrong`(body: String, pointer: String) throws {
        let refused = try put("m", body)
        #expect(refused.status == 422 && refused["pointer"].string == pointer, "\(refused.text)")
        #expect(try server.request("GET", "/v1/metrics/m").status == 404)
    }

    @Test func `Counts and totals are adjusted by the two weeks before, rates only if somebody asks`() throws {
        for (kind, standard) in [
            ("count", ["days": 14]), ("total", ["days": 14]), ("conversion", "none" as JSONValue),
        ] {
            #expect(try put(kind, #"{"kind":"\#(kind)","goal":"a"}"#)["adjustment"] == standard)
        }
        #expect(try put("total", #"{"adjustment":"none"}"#)["adjustment"] == "none")
        #expect(try put("total", #"{"cap":9}"#)["adjustment"] == "none")
        #expect(try put("total", #"{"adjustment":null}"#)["adjustment"] == ["days": 14])
        #expect(try put("total", #"{"kind":"conversion"}"#)["adjustment"] == "none")
        #expect(try put("m", #"{"kind":"mean","goal":"a"}"#).json.object?["adjustment"] == nil)
    }

    @Test(arguments: [
        (#""cap":30"#, #""cap":20"#, "/cap"), (#""cap":30"#, #""cap":null"#, "/cap"),
        (#""adjustment":"none""#, #""adjustment":{"days":14}"#, "/adjustment"),
    ])
    func `Once an experiment has started, a cap and an adjustment stay`(first: String, next: String, pointer: String)
        throws
    {
        #expect(try put("m", #"{"kind":"total","goal":"a","cap":5,"adjustment":{"days":3}}"#).status == 201)
        let draft = try server.request(
            "PUT", "/v1/experiments/draft",
            #"{"variations":["control","new"],"status":"draft","metrics":{"primary":["m"]}}"#)
        #expect(draft.status == 201, "\(draft.text)")
        #expect(try put("m", "{\(first)}").status == 200)
        #expect(try server.request("PUT", "/v1/experiments/draft", #"{"status":"running"}"#).status == 200)
        let refused = try put("m", "{\(next)}")
        #expect(refused.status == 409 && refused["pointer"].string == pointer, "\(refused.text)")
        #expect(refused.text.contains("'draft'"))
        #expect(try put("m", #"{\#(first),"description":"Money"}"#).status == 200)
        #expect(try put("m", #"{"unit":"EUR"}"#)["unit"] == "EUR")
        #expect(try put("m", #"{"unit":null}"#)["unit"] == "")
    }

    @Test func `An experiment names what it measures, and a metric in use cannot be deleted`() throws {
        for (key, body) in Self.valid { _ = try put(key, body) }
        let metrics = #"""
            {"primary":["buyers"],"secondary":["orders","back"],"guardrails":[{"metric":"errors","margin":0.05}],"breakdowns":["country"]}
            """#
        let changed = try server.request("PUT", "/v1/experiments/checkout", #"{"metrics":\#(metrics)}"#)
        #expect(changed.status == 200, "\(changed.text)")
        #expect(changed["metrics"] == (try JSONParser().parse(metrics)))
        #expect(try server.request("GET", "/v1/metrics/errors")["experiments"] == ["checkout"])
        let refused = try server.request("DELETE", "/v1/metrics/errors")
        #expect(refused.status == 409 && refused.text.contains("'checkout'"))
        let copy = try server.request("PUT", "/v1/experiments/second?from=checkout", "")
        #expect(copy["metrics"] == changed["metrics"], "\(copy.text)")
        #expect(
            try server.request("PUT", "/v1/experiments/checkout", #"{"traffic":50}"#)["metrics"] == changed["metrics"])
        for key in ["checkout", "second"] {
            let emptied = try server.request("PUT", "/v1/experiments/\(key)", #"{"metrics":null}"#)
            #expect(emptied.status == 200 && emptied.json.object?["metrics"] == nil, "\(emptied.text)")
        }
        #expect(try server.request("DELETE", "/v1/metrics/errors").status == 204)
    }

    @Test(arguments: [
        (#"{"primary":["nope"]}"#, "/metrics/primary/0"), (#"{"primary":["buyers",1]}"#, "/metrics/primary/1"),
        (#"{"primary":["buyers"],"secondary":["buyers"]}"#, "/metrics/secondary/0"),
        (#"{"guardrails":[{"metric":"buyers"}]}"#, "/metrics/guardrails/0/margin"),
        (#"{"guardrails":[{"metric":"buyers","margin":0}]}"#, "/metrics/guardrails/0/margin"),
        (#"{"guardrails":[{"metric":"nope","margin":0.1}]}"#, "/metrics/guardrails/0/metric"),
        (#"{"guardrails":["buyers"]}"#, "/metrics/guardrails/0"), (#"{"first":["buyers"]}"#, "/metrics/first"),
        (#"{"breakdowns":["a","b","c","d","e","f"]}"#, "/metrics/breakdowns"),
        (#"{"breakdowns":["a","a"]}"#, "/metrics/breakdowns/1"), (#"[]"#, "/metrics"),
    ])
    func `What an experiment cannot measure is refused`(metrics: String, pointer: String) throws {
        _ = try put("buyers", Self.valid[0].body)
        let refused = try server.request("PUT", "/v1/experiments/checkout", #"{"metrics":\#(metrics)}"#)
        #expect(refused.status == 422 && refused["pointer"].string == pointer, "\(refused.text)")
    }

    @Test func `What the kept results of a concluded experiment measure does not change until it is reopened`() throws {
        let experiment = "/v1/experiments/checkout"
        _ = try put("orders", #"{"kind":"count","goal":"purchase"}"#)
        _ = try put("other", #"{"kind":"count","goal":"visit"}"#)
        #expect(try server.request("PUT", experiment, #"{"metrics":{"primary":["orders"]}}"#).status == 200)
        #expect(try server.request("POST", experiment + "/conclude", #"{"winner":"new"}"#).status == 200)
        let changed = try put("orders", #"{"window":3}"#)
        #expect(changed.status == 409 && changed.text.contains("'checkout'"), "\(changed.text)")
        let added = try server.request("PUT", experiment, #"{"metrics":{"primary":["orders","other"]}}"#)
        #expect(added.status == 409 && added["pointer"] == "/metrics", "\(added.text)")
        // What is not computed anew may change.
        #expect(try put("orders", #"{"description":"per user"}"#).status == 200)
        #expect(try server.request("POST", experiment + "/reopen").status == 200)
        #expect(try put("orders", #"{"window":3}"#).status == 200)
    }

    @Test func `A project has at most 500 metrics, and an experiment measures at most 50`() throws {
        // The definitions of an upload, because 500 requests take long.
        var datafile = try server.request("GET", "/v1/datafile", fields: ["X-Optimizely-SDK-Key: default"]).json.object
        var metrics = JSONObject()
        for index in 0..<499 { metrics["m\(index)"] = ["kind": "count", "goal": "a"] }
        datafile?["holdfast"] = ["metrics": .object(metrics)]
        let upload = JSONValue.object(datafile ?? JSONObject()).encoded()
        #expect(try server.request("PUT", "/v1/datafile", String(decoding: upload, as: UTF8.self)).status == 200)
        #expect(try put("last", #"{"kind":"count","goal":"a"}"#).status == 201)
        let refused = try put("more", #"{"kind":"count","goal":"a"}"#)
        #expect(refused.status == 409 && refused.text.contains("500"), "\(refused.text)")
        #expect(try put("last", #"{"goal":"b"}"#).status == 200)
        func measure(_ count: Int) throws -> TestResponse {
            let keys = (0..<count).map { "\"m\($0)\"" }
            let (first, rest) = (keys.prefix(30).joined(separator: ","), keys.dropFirst(30).joined(separator: ","))
            return try server.request(
                "PUT", "/v1/experiments/checkout", #"{"metrics":{"primary":[\#(first)],"secondary":[\#(rest)]}}"#)
        }
        #expect(try measure(50).status == 200)
        let many = try measure(51)
        #expect(many.status == 422 && many["pointer"] == "/metrics", "\(many.text)")
    }
}

import APITestSupport
import Foundation
import JSON
import Testing

/// The API of Bucketeer's SDKs: responses as golden files, decoded as the iOS SDK does, and events.
@Suite struct BucketeerTests {
    private let server: any TestServer

    init() throws {
        server = try startTestServer()
    }

    // MARK: What the iOS SDK decodes; all members are required.

    private struct Evaluations: Decodable {
        struct Content: Decodable {
            let id: String
            let evaluations: [Evaluation]
            let createdAt: String
            let forceUpdate: Bool
            let archivedFeatureIds: [String]
        }
        let evaluations: Content
        let userEvaluationsId: String
    }

    private struct Evaluation: Decodable {
        struct Reason: Decodable {
            enum Kind: String, Decodable {
                case target = "TARGET"
                case rule = "RULE"
                case `default` = "DEFAULT"
                case client = "CLIENT"
                case off = "OFF_VARIATION"
                case prerequisite = "PREREQUISITE"
            }
            let type: Kind
            let ruleId: String
        }
        let id: String
        let featureId: String
        let featureVersion: Int
        let userId: String
        let variationId: String
        let variationName: String
        let variationValue: String
        let reason: Reason
    }

    private struct Registered: Decodable {
        struct Failure: Decodable {
            let retriable: Bool
            let message: String
        }
        let errors: [String: Failure]
    }

    private func decode<Value: Decodable>(_ type: Value.Type, _ response: TestResponse) throws -> Value {
        #expect(response.status == 200, "\(response.text)")
        #expect(response.field("content-type") == "application/json")
        return try JSONDecoder().decode(type, from: Data(response.body))
    }

    private func evaluate(
        _ user: String = "ann", tag: String = "", known: String = "", data: String = "{}"
    ) throws -> Evaluations {
        try decode(
            Evaluations.self,
            server.request(
                "POST", "/get_evaluations",
                #"{"tag":"\#(tag)","user":{"id":"\#(user)","data":\#(data)},"userEvaluationsId":"\#(known)","sourceId":2,"#
                    + #""userEvaluationCondition":{"evaluatedAt":"0","userAttributesUpdated":false},"sdkVersion":"2.2.0"}"#
            ))
    }

    private func register(_ events: String...) throws -> Registered {
        try decode(
            Registered.self,
            server.request(
                "POST", "/register_events",
                #"{"events":[\#(events.joined(separator: ","))],"sdkVersion":"2.2.0","sourceId":2}"#))
    }

    private func event(_ kind: String, _ id: String, _ members: String, age: Int = 0) -> String {
        let time = Int(Date().timeIntervalSince1970) - age
        return #"{"id":"\#(id)","event":{"@type":"type.googleapis.com/bucketeer.event.client.\#(kind)","#
            + #""timestamp":\#(time),"sourceId":2,"metadata":{"app_version":"1.0"},\#(members)},"type":3}"#
    }

    /// Activates a datafile with the flag and experiment `checkout`.
    private func put(control: Int, new: Int = 0) throws {
        func variation(_ key: String, _ id: Int) -> String {
            #"{"id":"\#(id)","key":"\#(key)","featureEnabled":true,"variables":[{"id":"v1","value":"\#(key)"}]}"#
        }
        let datafile =
            #"{"version":"4","accountId":"1","projectId":"2","revision":"\#(control + 2 * new)","attributes":[],"#
            + #""audiences":[],"groups":[],"events":[],"rollouts":[],"variables":[],"#
            + #""featureFlags":[{"id":"f1","key":"checkout","experimentIds":["7001"],"rolloutId":"","variables":"#
            + #"[{"id":"v1","key":"value","type":"string","defaultValue":"none"}]}],"#
            + #""experiments":[{"id":"7001","key":"checkout","layerId":"1","status":"Running","audienceIds":[],"#
            + #""forcedVariations":{},"variations":[\#(variation("control", 70_011)),\#(variation("new", 70_012))],"#
            + #""trafficAllocation":[{"entityId":"70011","endOfRange":\#(control)},"#
            + #"{"entityId":"70012","endOfRange":\#(control + new)}]}]}"#
        let response = try server.request("PUT", "/v1/datafile", datafile, fields: ["X-Optimizely-SDK-Key: default"])
        #expect(response.status < 300, "\(response.text)")
    }

    /// Flags of each type and reason.
    private func putDatafile() throws {
        func flag(_ key: String, type: String, value: String, rollout: String = "", experiments: String = "") -> String
        {
            #"{"id":"\#(key)","key":"\#(key)","experimentIds":[\#(experiments)],"rolloutId":"\#(rollout)","variables":"#
                + #"[{"id":"v-\#(key)","key":"value","type":"\#(type)","defaultValue":\#(value)}],"#
                + #""holdfast":{"tags":["\#(type)"],"version":3}}"#
        }
        func rule(_ key: String, audience: String = "") -> String {
            #"{"id":"\#(key)","key":"\#(key)","layerId":"1","status":"Running","audienceIds":[\#(audience)],"#
                + #""forcedVariations":{},"variations":[{"id":"\#(key)-on","key":"on","featureEnabled":true}],"#
                + #""trafficAllocation":[{"entityId":"\#(key)-on","endOfRange":10000}]}"#
        }
        let flags = [
            flag("off", type: "string", value: #""none""#),
            flag("number", type: "double", value: #""2.0""#, rollout: "r1"),
            flag("whole", type: "integer", value: #""7""#, rollout: "r2"),
            flag("layout", type: "json", value: #""{\"a\":[1,true]}""#, rollout: "r2"),
        ]
        let audience =
            #"{"id":"a1","name":"adults","conditions":"[\"and\",{\"name\":\"age\",\"type\":\"custom_attribute\",\"match\":\"ge\",\"value\":18}]"}"#
        let datafile =
            #"{"version":"4","accountId":"1","projectId":"2","revision":"5","attributes":[{"id":"1","key":"age"}],"#
            + #""audiences":[\#(audience)],"groups":[],"events":[],"experiments":[],"variables":[],"#
            + #""featureFlags":[\#(flags.joined(separator: ","))],"#
            + #""rollouts":[{"id":"r1","experiments":[\#(rule("adults", audience: #""a1""#))]},"#
            + #"{"id":"r2","experiments":[\#(rule("everyone"))]}]}"#
        let response = try server.request("PUT", "/v1/datafile", datafile, fields: ["X-Optimizely-SDK-Key: default"])
        #expect(response.status < 300, "\(response.text)")
    }

    // MARK: Golden files

    /// Compares with a file in `Golden/`, with ids and times as they were there.
    private func expectGolden(_ name: String, _ response: TestResponse) throws {
        let path = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .appendingPathComponent("Golden/\(name)")
        let text = response.text
            .replacing(#/"createdAt":"\d+"/#, with: #""createdAt":"1769860800""#)
            .replacing(#/"time":"\d+"/#, with: #""time":"1769860800""#)
        let golden = try String(contentsOf: path, encoding: .utf8).trimmingCharacters(in: .newlines)
        #expect("\(response.status) \(text)" == golden, "\(name)")
    }

    @Test func `Responses have the shape of the golden files`() throws {
        func send(_ method: String, _ target: String, _ body: String? = nil) throws -> TestResponse {
            try server.request(method, target, body)
        }
        try expectGolden("ping.txt", send("GET", "/ping"))
        let ann = #""user":{"id":"ann"}"#
        try expectGolden("no-flags.txt", send("POST", "/get_evaluations", "{\(ann)}"))
        try putDatafile()
        try expectGolden("evaluations.txt", send("POST", "/get_evaluations", "{\(ann)}"))
        let id = try evaluate().userEvaluationsId
        try expectGolden(
            "unchanged.txt", send("POST", "/get_evaluations", #"{\#(ann),"userEvaluationsId":"\#(id)"}"#))
        try expectGolden("evaluation.txt", send("POST", "/get_evaluation", #"{\#(ann),"featureId":"layout"}"#))
        try expectGolden("unknown-flag.txt", send("POST", "/get_evaluation", #"{\#(ann),"featureId":"x"}"#))
        try expectGolden("bad-request.txt", send("POST", "/get_evaluations", #"{"tag":""}"#))
        let wrongMethod = try send("GET", "/get_evaluations")
        #expect(wrongMethod.status == 405)
        #expect(wrongMethod["code"] == 12)
        try expectGolden(
            "registered.txt",
            send(
                "POST", "/register_events",
                #"{"events":[{"id":"a","event":{"@type":"type.googleapis.com/bucketeer.event.client.OpsEvent"}},"#
                    + event("MetricsEvent", "b", #""event":{}"#) + "]}"))
    }

    // MARK: Evaluations

    @Test func `Values are texts, and reasons those that SDKs know`() throws {
        #expect(try server.request("PUT", "/v1/attributes/age", #"{"type":"number"}"#).status < 300)
        try putDatafile()
        let young = try evaluate().evaluations.evaluations
        #expect(young.map(\.featureId) == ["off", "number", "whole", "layout"])
        #expect(young.map(\.variationValue) == ["none", "2.0", "7", #"{"a":[1,true]}"#])
        #expect(young.map(\.reason.type) == [.off, .default, .default, .default])
        #expect(young.map(\.variationId) == ["default", "default", "everyone-on", "everyone-on"])
        #expect(young.allSatisfy { $0.featureVersion == 3 && $0.userId == "ann" })
        #expect(young.map(\.id) == ["off:3:ann", "number:3:ann", "whole:3:ann", "layout:3:ann"])
        let adult = try evaluate(data: #"{"age":"30"}"#).evaluations.evaluations
        #expect(adult[1].reason.type == .rule)
        #expect(adult[1].reason.ruleId == "adults")
        #expect(adult[1].variationId == "adults-on")
    }

    @Test func `A tag chooses flags, and nobody is enrolled by others`() throws {
        try putDatafile()
        #expect(try evaluate(tag: "json").evaluations.evaluations.map(\.featureId) == ["layout"])
        #expect(try evaluate(tag: "nothing").evaluations.evaluations.isEmpty)
    }

    @Test func `A user stays in the variation, and the id of the evaluations changes with whatever changes them`()
        throws
    {
        try put(control: 10_000)
        let first = try evaluate()
        #expect(first.evaluations.forceUpdate)
        #expect(first.evaluations.id == first.userEvaluationsId)
        #expect(first.evaluations.evaluations.map(\.variationValue) == ["control"])
        #expect(first.evaluations.evaluations.first?.reason.type == .rule)
        let stored = try server.request("GET", "/v1/profiles/ann?detail=true")["experiment_bucket_map"]["7001"]
        #expect(stored["variation_id"] == "70011")
        #expect(stored["source"] == "bucketed")

        let second = try evaluate(known: first.userEvaluationsId)
        #expect(!second.evaluations.forceUpdate)
        #expect(second.evaluations.evaluations.isEmpty)
        #expect(second.userEvaluationsId == first.userEvaluationsId)

        try put(control: 0, new: 10_000)
        let later = try evaluate()
        #expect(later.evaluations.evaluations.map(\.variationValue) == ["control"])
        let id = later.userEvaluationsId
        let override = try server.request(
            "PUT", "/v1/profiles/ann/experiments/checkout", #"{"variation_key":"new"}"#)
        #expect(override.status == 200, "\(override.text)")
        let overridden = try evaluate(known: id)
        #expect(overridden.evaluations.forceUpdate)
        #expect(overridden.evaluations.evaluations.map(\.variationValue) == ["new"])
        #expect(overridden.evaluations.evaluations.first?.reason.type == .target)
        #expect(try evaluate("bob").userEvaluationsId != overridden.userEvaluationsId)
    }

    @Test func `An SDK for servers gets one evaluation, the same`() throws {
        try put(control: 10_000)
        let all = try evaluate().evaluations.evaluations
        let one = try server.request(
            "POST", "/get_evaluation", #"{"tag":"","user":{"id":"ann"},"featureId":"checkout","sourceId":5}"#)
        #expect(one["evaluation"]["variationId"].string == all.first?.variationId)
        for (body, status) in [
            (#"{"user":{"id":"ann"}}"#, 400), (#"{"user":{"id":"ann"},"featureId":"x"}"#, 404),
            (#"{"user":{"id":"ann"},"featureId":"checkout","tag":"ios"}"#, 404),
        ] { #expect(try server.request("POST", "/get_evaluation", body).status == status) }
    }

    @Test func `A user who takes part in nothing gets the flag's default`() throws {
        try put(control: 0)
        let evaluation = try #require(try evaluate().evaluations.evaluations.first)
        #expect(evaluation.variationValue == "none")
        #expect(evaluation.variationId == "default")
        #expect(evaluation.reason.type == .default)
        let seen =
            #""featureId":"checkout","userId":"ann","variationId":"default","reason":{"type":"DEFAULT","ruleId":""}"#
        #expect(try register(event("EvaluationEvent", "id-1", seen)).errors.isEmpty)
        #expect(try lines("/v1/exposures").isEmpty)
    }

    // MARK: Events

    @Test func `Evaluation events become exposures and goal events goals, once for each id`() throws {
        try put(control: 10_000)
        let shown = try #require(try evaluate().evaluations.evaluations.first)
        let seen =
            #""featureId":"checkout","featureVersion":1,"userId":"ann","variationId":"\#(shown.variationId)","#
            + #""user":{"id":"ann","data":{}},"reason":{"type":"RULE","ruleId":"checkout"},"tag":"ios""#
        let goal = #""goalId":"purchase","userId":"ann","value":49.5,"user":{"id":"ann","data":{}},"tag":"ios""#
        let events = [
            event("EvaluationEvent", "id-1", seen, age: 60), event("GoalEvent", "id-2", goal, age: 30),
            event("MetricsEvent", "id-3", #""event":{"latencySecond":1}"#),
        ]
        for _ in 0..<2 { #expect(try register(events[0], events[1], events[2]).errors.isEmpty) }
        let exposures = try lines("/v1/exposures")
        #expect(exposures.map { $0["user_id"] } == ["ann"])
        #expect(exposures.first?["variation_id"] == "70011")
        let goals = try lines("/v1/events")
        #expect(goals.map { $0["goal"] } == ["purchase"])
        #expect(goals.first?["value"]?.double == 49.5)
        #expect(goals.first?["id"] == "id-2")
        #expect(goals.first?["detail"]?["tags"]["tag"] == "ios")
        let results = try server.request("GET", "/v1/experiments/checkout/results?goal=purchase")
        #expect(results.status == 200)
        #expect(try server.request("GET", "/metrics").text.contains("holdfast_bucketeer_metrics_events_total 2"))
    }

    @Test func `Exposures of an override do not count`() throws {
        try put(control: 10_000)
        #expect(
            try server.request("PUT", "/v1/profiles/ann/experiments/checkout", #"{"variation_key":"new"}"#).status
                == 200)
        let seen =
            #""featureId":"checkout","userId":"ann","variationId":"70012","reason":{"type":"TARGET","ruleId":""}"#
        #expect(try register(event("EvaluationEvent", "id-1", seen)).errors.isEmpty)
        #expect(try lines("/v1/exposures").first?["forced"] == true)
    }

    @Test func `What cannot be stored is told by its id, and the rest is stored`() throws {
        try put(control: 10_000)
        let goal = #""goalId":"purchase","userId":"ann""#
        let day = 86_400
        let errors = try register(
            event("GoalEvent", "good", goal), event("GoalEvent", "old", goal, age: 31 * day - 60),
            event("GoalEvent", "ahead", goal, age: -3_500), event("GoalEvent", "too-old", goal, age: 31 * day + 60),
            event("GoalEvent", "too-far", goal, age: -3_700), event("GoalEvent", "no-goal", #""userId":"ann""#),
            event("GoalEvent", "no-user", #""goalId":"purchase""#),
            event("GoalEvent", "no-number", #""goalId":"purchase","userId":"ann","value":"much""#),
            event("GoalEvent", "number-as-text", #""goalId":"purchase","userId":"ann","value":"49.90""#),
            event("EvaluationEvent", "no-flag", #""featureId":"x","userId":"ann","variationId":"1","reason":{}"#),
            event("EvaluationEvent", "no-experiment", #""featureId":"checkout","userId":"ann","variationId":"1""#),
            event(
                "EvaluationEvent", "none", #""featureId":"x","userId":"ann","reason":{"type":"ERROR_FLAG_NOT_FOUND"}"#),
            event("OpsEvent", "other", goal), #"{"id":"empty"}"#
        ).errors
        #expect(
            errors.keys.sorted() == [
                "empty", "no-flag", "no-goal", "no-number", "no-user", "other", "too-far", "too-old",
            ])
        #expect(errors.values.allSatisfy { !$0.retriable })
        #expect(errors["no-flag"]?.message == "no flag has the key 'x'")
        #expect(errors["no-number"]?.message == "`value` must be a number; got 'much'")
        #expect(try lines("/v1/events").map { $0["value"]?.double } == [0, 0, 0, 49.9])
        #expect(try lines("/v1/exposures").isEmpty)
    }

    private func lines(_ target: String) throws -> [JSONObject] {
        let text = try server.request("GET", target).text
        return try text.split(separator: "\n").compactMap { try JSONParser().parse(Array($0.utf8)).object }
    }

    // MARK: Errors

    @Test(arguments: [
        ("/get_evaluations", "[]", "a request must be an object; got an array"),
        ("/get_evaluations", "{", "the body must be JSON"), ("/get_evaluations", "{}", "`user` is required, at /user"),
        ("/get_evaluations", #"{"user":{}}"#, "1 to 1024 bytes long; got none, at /user/id"),
        ("/get_evaluations", #"{"user":{"id":1}}"#, "`id` must be a string; got a number, at /user/id"),
        (
            "/get_evaluations", #"{"user":{"id":"a","data":{"n":1}}}"#,
            "strings as values; got a number, at /user/data/n"
        ),
        ("/get_evaluation", #"{"user":{"id":"a"}}"#, "`featureId` is required, at /featureId"),
        ("/register_events", "{}", "`events` must be an array of at least one event; got nothing, at /events"),
        ("/register_events", #"{"events":[]}"#, "got an empty one, at /events"),
        ("/register_events", #"{"events":[{"event":{}}]}"#, "an event must have an `id` of 1 to 128 bytes"),
    ])
    func `A wrong request gets an error of the gateway`(target: String, body: String, detail: String) throws {
        let response = try server.request("POST", target, body)
        #expect(response.status == 400)
        #expect(response["code"] == 3)
        #expect(response["details"] == [])
        #expect(response["message"].string?.contains(detail) == true, "\(response.text)")
    }

    @Test func `A key is sent without a scheme: 401 without one, 403 with one that is unknown or may not evaluate`()
        throws
    {
        let server = try startTestServer(
            tokens: "write app app-secret-0123456789\nattributes other other-secret-0123456\n")
        func ask(_ fields: [String]) throws -> TestResponse {
            try server.request("POST", "/get_evaluations", #"{"user":{"id":"ann"}}"#, fields: fields)
        }
        let missing = try ask([])
        #expect(missing.status == 401)
        #expect(missing["code"] == 16)
        for key in ["app-secret-012345678X", "other-secret-0123456"] {
            let refused = try ask(["Authorization: \(key)"])
            #expect(refused.status == 403)
            #expect(refused["code"] == 7)
        }
        #expect(try ask(["Authorization: app-secret-0123456789"]).status == 200)
        #expect(try ask(["Authorization: Bearer app-secret-0123456789"]).status == 200)
        #expect(try server.request("GET", "/ping").status == 200)
    }
}

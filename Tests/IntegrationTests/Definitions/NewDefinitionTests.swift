import APITestSupport
import Glibc
import JSON
import PostgreSQLTestSupport
import Testing

/// Two server processes on one database: what one has just defined, the other one knows when it is asked for it.
@Suite struct NewDefinitionTests {
    private static let databases: [HistoryRun.Setting.Database] = [.sqlite, .postgreSQL(.direct)]

    /// Requests that name an experiment, and what each response must have.
    private static let requests: [(method: String, target: String, body: String?, has: String)] = [
        ("POST", "/v1/assign", #"{"user_id":"u","experiment":"KEY"}"#, #""experiment_key":"KEY""#),
        ("POST", "/v1/assign", #"[{"user_id":"u","experiment":"KEY"}]"#, #""experiment_key":"KEY""#),
        ("GET", "/v1/assign?user_id=u&experiment=KEY", nil, #""experiment_key":"KEY""#),
        ("POST", "/v1/evaluations", #"{"user_id":"u","flag_keys":["KEY"]}"#, #""flag_key":"KEY""#),
        ("POST", "/v1/exposures", #"{"user_id":"u","experiment":"KEY","variation_key":"a"}"#, "stored"),
        ("POST", "/v1/exposures", #"[{"user_id":"u","experiment":"KEY","variation_key":"a"}]"#, "stored"),
        ("GET", "/v1/experiments/KEY", nil, #""key":"KEY""#),
        ("GET", "/v1/flags/KEY", nil, #""key":"KEY""#),
        ("PUT", "/v1/experiments/KEY", #"{"enrollment":"closed"}"#, #""key":"KEY""#),
        ("DELETE", "/v1/experiments/KEY", nil, ""),
        ("GET", "/v1/experiments/KEY/results?goal=g", nil, "KEY"),
        ("GET", "/v1/profiles/u/experiments/KEY/explain", nil, #""experiment_key":"KEY""#),
        ("PUT", "/v1/profiles/u/experiments/KEY", #"{"variation_key":"b"}"#, #""known":true"#),
        ("POST", "/ofrep/v1/evaluate/flags/KEY", #"{"context":{"targetingKey":"u"}}"#, #""value":"#),
        ("POST", "/v1/decide?keys=KEY", #"{"userId":"u"}"#, #""ruleKey":"KEY""#),
        ("POST", "/v1/activate?experimentKey=KEY", #"{"userId":"u"}"#, #""type":"experiment""#),
        (
            "POST", "/v1/override", #"{"userId":"u","experimentKey":"KEY","variationKey":"a"}"#, #""messages":null"#
        ),
        (
            "POST", "/v1/batch",
            #"{"operations":[{"operationID":"1","method":"POST","url":"/v1/decide","params":{"keys":"KEY"},"headers":{"X-Optimizely-SDK-Key":"default","Content-Type":"application/json"},"body":{"userId":"u"}}]}"#,
            #""ruleKey":"KEY""#
        ),
        ("POST", "/get_evaluation", #"{"user":{"id":"u"},"featureId":"KEY"}"#, #""featureId":"KEY""#),
        (
            "POST", "/register_events",
            #"{"events":[{"id":"KEY","event":{"@type":"type.googleapis.com/bucketeer.event.client.EvaluationEvent","timestamp":"TIME","featureId":"KEY","variationId":"v","userId":"u"}}]}"#,
            #""errors":{}"#
        ),
        (
            "POST", "/sdk/v1/events",
            #"{"visitors":[{"visitor_id":"u","snapshots":[{"decisions":[{"campaign_id":"1","experiment_id":"NUMBER","variation_id":null,"metadata":{"variation_key":"b"}}],"events":[{"entity_id":"1","key":"campaign_activated"}]}]}]}"#,
            ""
        ),
    ]

    @Test(arguments: databases)
    func `An experiment that a server has just made is known to the others`(_ kind: HistoryRun.Setting.Database) throws
    {
        let directory = try TemporaryDirectory()
        let database = try SharedDatabase.make(kind, in: directory)
        let servers = try (0..<2).map { _ in try ServerProcess(database: database.location, database.options) }
        let (first, second) = (try servers[0].client(), try servers[1].client())
        for (number, asked) in Self.requests.enumerated() {
            let key = "new\(number)"
            let definition = #"{"variations":["a","b"],"traffic":100}"#
            let target = asked.target.replacing("KEY", with: key)
            let made = try first.request("PUT", "/v1/experiments/\(key)", definition)
            #expect(made.status == 201)
            let body = asked.body?.replacing("KEY", with: key).replacing("TIME", with: "\(time(nil))")
                .replacing("NUMBER", with: made["id"].string ?? "")
            let response = try second.request(
                asked.method, target, body,
                fields: [
                    "X-Optimizely-SDK-Key: default", "Content-Type: application/json", "X-Optimizely-Strict: true",
                ])
            #expect((200..<300).contains(response.status), "\(asked.method) \(target): \(response.text)")
            let expected = asked.has.replacing("KEY", with: key)
            #expect(expected.isEmpty || response.text.contains(expected), "\(asked.method) \(target): \(response.text)")
        }
    }

    @Test(arguments: databases)
    func `Attributes, segments, projects and overrides are known to the other servers, too`(
        _ kind: HistoryRun.Setting.Database
    ) throws {
        let directory = try TemporaryDirectory()
        let database = try SharedDatabase.make(kind, in: directory)
        let servers = try (0..<2).map { _ in try ServerProcess(database: database.location, database.options) }
        let (first, second) = (try servers[0].client(), try servers[1].client())
        func datafile(_ key: String) -> TestResponse? {
            try? second.request("GET", "/datafiles/\(key).json")
        }

        #expect(try first.request("PUT", "/v1/attributes/plan", #"{"type":"string"}"#).status == 201)
        #expect(try second.request("PATCH", "/v1/profiles/u/attributes", #"{"plan":"pro"}"#).status == 200)
        let segment = #"{"conditions":["and",{"type":"custom_attribute","name":"age","match":"gt","value":17}]}"#
        #expect(try first.request("PUT", "/v1/attributes/age", #"{"type":"number"}"#).status == 201)
        let put = try second.request("PUT", "/v1/segments/adults", segment)
        #expect(put.status == 201, "\(put.text)")
        #expect(try first.request("GET", "/v1/segments/adults").status == 200)
        let audience = #"{"variations":["a"],"audience":{"segment":"adults2"}}"#
        #expect(try second.request("PUT", "/v1/segments/adults2", segment).status == 201)
        let experiment = try first.request("PUT", "/v1/experiments/x", audience)
        #expect(experiment.status == 201, "\(experiment.text)")
        #expect(datafile("default")?.status == 200)
        #expect(try first.request("PUT", "/v1/experiments/y", #"{"variations":["a","b"]}"#).status == 201)
        let override = #"{"variation_key":"b"}"#
        #expect(try first.request("PUT", "/v1/profiles/u/experiments/y", override).status == 200)
        #expect(try second.request("GET", "/v1/profiles/u/experiments/y")["variation_key"] == "b")
        #expect(try first.request("PUT", "/v1/experiments/z", #"{"variations":["a","b"]}"#).status == 201)
        #expect(try first.request("PUT", "/v1/profiles/u/experiments/z", override).status == 200)
        #expect(try second.request("DELETE", "/v1/profiles/u/experiments/z").status == 204)
    }

    @Test func `What nobody has defined is unknown still, however many ask`() throws {
        let directory = try TemporaryDirectory()
        let server = try ServerProcess(database: directory.file("holdfast.db"))
        #expect(try server.request("PUT", "/v1/experiments/x", #"{"variations":["a"]}"#).status == 201)
        let clients = try (0..<20).map { _ in try server.client() }
        for round in 0..<5 {
            for (number, client) in clients.enumerated() {
                try client.send(HTTPClient.head("GET", "/v1/assign?user_id=u&experiment=no\(round)-\(number)"))
            }
            for client in clients { #expect(try client.receive().status == 404) }
        }
        let batch = (0..<100).map { #"{"user_id":"u","experiment":"\#($0 % 2 == 0 ? "x" : "none\($0)")"}"# }
        let response = try clients[0].request("POST", "/v1/assign", "[\(batch.joined(separator: ","))]")
        let elements = try #require(response.json.array)
        #expect(elements.map { $0["variation_key"].string != nil } == (0..<100).map { $0 % 2 == 0 })
        #expect(elements.filter { $0["problem"]["status"].integer == 404 }.count == 50)
    }
}

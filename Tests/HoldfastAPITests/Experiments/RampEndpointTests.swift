import APITestSupport
import JSON
import Testing

/// Ramps and schedules as requests give them and responses show them. `RampTests` lets time pass.
@Suite struct RampEndpointTests {
    private let server: any TestServer
    private static let steps = #"[{"traffic":1,"for":"1d"},{"traffic":5.5,"users":1000},{"traffic":100}]"#

    init() throws {
        server = try startTestServer()
    }

    @discardableResult
    private func put(_ members: String, key: String = "checkout") throws -> TestResponse {
        try server.request("PUT", "/v1/experiments/\(key)", #"{"variations":["a","b"],\#(members)}"#)
    }

    @Test func `A ramp is shown with its state, and what is shown may be sent back`() throws {
        // A draft's ramp waits, however often it is looked at.
        let created = try put(#""status":"draft","ramp":{"steps":\#(Self.steps)}"#)
        #expect(created.status == 201, "\(created.text)")
        #expect(created["traffic"] == 1)
        #expect(created["ramp"]["on_alarm"] == "pause" && created["ramp"]["keep"] == true)
        #expect(created["ramp"]["state"] == ["status": "waiting", "step": 1])
        #expect(created["ramp"]["steps"].array?.map { $0["traffic"] } == [1, 5.5, 100])
        let again = try server.request("PUT", "/v1/experiments/checkout", created.text)
        #expect(again.status == 200 && again.json == created.json, "\(again.text)")
        let datafile = try server.request("GET", "/datafiles/default.json")
        #expect(!datafile.text.contains("ramp") && datafile.text.contains("checkout"))
        let entry = try server.request("GET", "/v1/audit")["entries"].array?.first
        #expect(entry?["after"]["experiment"]["ramp"] == created["ramp"])
        let removed = try server.request("PUT", "/v1/experiments/checkout", #"{"ramp":null,"traffic":3}"#)
        #expect(removed.json.object?["ramp"] == nil && removed["traffic"] == 3)
    }

    @Test func `With a start in its schedule a new experiment is a draft`() throws {
        let created = try put(#""schedule":{"start_at":"2126-01-31T12:00:00Z","end_at":"2126-02-28T12:00:00Z"}"#)
        #expect(created["status"] == "draft", "\(created.text)")
        #expect(
            created["schedule"]
                == ["start_at": "2126-01-31T12:00:00.000Z", "end_at": "2126-02-28T12:00:00.000Z"])
        let again = try server.request("PUT", "/v1/experiments/checkout", created.text)
        #expect(again.json == created.json)
        let copy = try server.request("PUT", "/v1/experiments/copy?from=checkout", "{}")
        #expect(copy["status"] == "draft" && copy.json.object?["schedule"] == nil)
        let removed = try server.request("PUT", "/v1/experiments/checkout", #"{"schedule":null}"#)
        #expect(removed.json.object?["schedule"] == nil)
    }

    @Test func `A ramp is stopped and resumed by hand`() throws {
        try put(#""status":"draft","ramp":{"steps":\#(Self.steps)}"#)
        let path = "/v1/experiments/checkout/ramp"
        let stopped = try server.request("POST", path, #"{"action":"stop"}"#)
        #expect(stopped["ramp"]["state"]["status"] == "ended", "\(stopped.text)")
        #expect(stopped["ramp"]["state"]["reason"] == "stopped by hand")
        let entry = try server.request("GET", "/v1/audit?action=experiment.ramp")["entries"].array?.first
        #expect(entry?["author"] == "anonymous")
        let twice = try server.request("POST", path, #"{"action":"stop"}"#)
        #expect(twice.status == 409 && twice["detail"].string?.contains("waiting, active, held") == true)
        #expect(try server.request("POST", path, #"{"action":"resume"}"#)["ramp"]["state"]["status"] == "waiting")
        for (body, status, pointer) in [
            (#"{"action":"pause"}"#, 422, "/action"), ("{}", 400, "/action"), (#"{"action":1}"#, 400, "/action"),
            (#"{"action":"stop","why":1}"#, 400, "/why"),
        ] {
            let refused = try server.request("POST", path, body)
            #expect(refused.status == status && refused["pointer"].string == pointer, "\(refused.text)")
        }
        try put(#""traffic":50"#, key: "plain")
        #expect(try server.request("POST", "/v1/experiments/plain/ramp", #"{"action":"stop"}"#).status == 409)
        #expect(try server.request("POST", "/v1/experiments/nothing/ramp", #"{"action":"stop"}"#).status == 404)
    }

    @Test(arguments: [
        (#""ramp":7"#, "/ramp"), (#""ramp":{}"#, "/ramp/steps"), (#""ramp":{"steps":[]}"#, "/ramp/steps"),
        (#""ramp":{"steps":[{"traffic":5}],"on_alarm":"stop"}"#, "/ramp/on_alarm"),
        (#""ramp":{"steps":[{"traffic":5}],"keep":"yes"}"#, "/ramp/keep"),
        (#""ramp":{"steps":[{"traffic":5}],"alarm":"hold"}"#, "/ramp/alarm"),
        (#""ramp":{"steps":[{"for":"1d"}]}"#, "/ramp/steps/0/traffic"),
        (#""ramp":{"steps":[{"traffic":101}]}"#, "/ramp/steps/0/traffic"),
        (#""ramp":{"steps":[{"traffic":5},{"traffic":6}]}"#, "/ramp/steps/0"),
        (#""ramp":{"steps":[{"traffic":5,"for":"1d","users":5}]}"#, "/ramp/steps/0"),
        (#""ramp":{"steps":[{"traffic":5,"for":"1d"},{"traffic":5}]}"#, "/ramp/steps/1/traffic"),
        (#""ramp":{"steps":[{"traffic":5,"for":"soon"}]}"#, "/ramp/steps/0/for"),
        (#""ramp":{"steps":[{"traffic":5,"for":"0s"}]}"#, "/ramp/steps/0/for"),
        (#""ramp":{"steps":[{"traffic":5,"for":"367d"}]}"#, "/ramp/steps/0/for"),
        (#""ramp":{"steps":[{"traffic":5,"for":"99999999999999999999d"}]}"#, "/ramp/steps/0/for"),
        (#""ramp":{"steps":[{"traffic":5,"users":0}]}"#, "/ramp/steps/0/users"),
        (#""ramp":{"steps":[{"traffic":5,"users":1.5}]}"#, "/ramp/steps/0/users"),
        (#""ramp":{"steps":[{"traffic":5,"users":9},{"traffic":6,"users":9}]}"#, "/ramp/steps/1/users"),
        (#""traffic":5,"ramp":{"steps":[{"traffic":5}]}"#, "/traffic"),
        (#""schedule":[]"#, "/schedule"), (#""schedule":{"start":1}"#, "/schedule/start"),
        (#""schedule":{"start_at":"tomorrow"}"#, "/schedule/start_at"),
        (#""schedule":{"start_at":"2126-01-01T00:00:00Z","end_at":"2126-01-01T00:00:00Z"}"#, "/schedule/end_at"),
    ])
    func `What is not a ramp or a schedule is refused`(members: String, pointer: String) throws {
        let refused = try put(members)
        #expect(refused.status == 422 && refused["pointer"].string == pointer, "\(refused.text)")
        #expect(try server.request("GET", "/v1/experiments/checkout").status == 404)
    }

    @Test func `At most 20 steps`() throws {
        func steps(_ count: Int) -> String {
            (1...count).map { #"{"traffic":\#($0),"for":"1d"}"# }.joined(separator: ",")
        }
        #expect(try put(#""ramp":{"steps":[\#(steps(21))]}"#)["pointer"] == "/ramp/steps")
        #expect(try put(#""ramp":{"steps":[\#(steps(20))]}"#).status == 201)
    }
}

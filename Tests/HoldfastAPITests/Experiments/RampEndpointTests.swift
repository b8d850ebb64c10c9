import APITestSupport
import JSON
import Testing

/// Ramps as requests give them and responses show them. `TimedRulesTests` has the rules; `RampTests` lets time pass.
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
}

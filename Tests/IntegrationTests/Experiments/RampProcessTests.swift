import APITestSupport
import JSON
import ProcessTestSupport
import Testing

/// The ramp of an experiment while its servers are killed.
@Suite struct RampProcessTests {
    private static let steps = [1, 2, 5, 25, 100]

    @Test func `Each step is taken once by two processes that are killed again and again`() throws {
        let directory = try TemporaryDirectory()
        let database = directory.file("holdfast.db")
        let steps = Self.steps.map { $0 == 100 ? #"{"traffic":100}"# : #"{"traffic":\#($0),"for":"1s"}"# }
        let body = #"{"id":"7","variations":["a","b"],"ramp":{"steps":[\#(steps.joined(separator: ","))]}}"#
        var known = 0
        while known < steps.count {
            let servers = [try ServerProcess(database: database), try ServerProcess(database: database)]
            if known == 0 { #expect(try servers[0].request("PUT", "/v1/experiments/e", body).status == 201) }
            known = try step(of: servers, after: known)
            // The next step becomes due while no process runs, or while these are about to take it.
            for server in servers { server.kill() }
        }
        let server = try ServerProcess(database: database)
        #expect(try server.request("GET", "/v1/experiments/e")["ramp"]["state"]["status"] == "completed")
        let entries = try server.request("GET", "/v1/audit?action=experiment.ramp")["entries"].array ?? []
        let taken = entries.reversed().map { $0["after"]["experiment"]["ramp"]["state"]["step"] }
        #expect(taken == [1, 2, 3, 4, 5])
        #expect(entries.reversed().map { $0["after"]["experiment"]["traffic"] } == [1, 2, 5, 25, 100])
        server.stop()
    }

    /// Waits up to a minute for a step after a known one, counted from 1, and returns it.
    private func step(of servers: [ServerProcess], after known: Int) throws -> Int {
        let deadline = ContinuousClock.now + .seconds(60)
        var turn = 0
        while .now < deadline {
            turn += 1
            let state = try servers[turn % 2].request("GET", "/v1/experiments/e")["ramp"]["state"]
            if state["status"] != "waiting", let step = state["step"].double, Int(step) > known { return Int(step) }
        }
        throw TestFailure("no step was taken after \(known)")
    }

    @Test func `A broken split pauses the experiment within a second of the commit`() throws {
        let directory = try TemporaryDirectory()
        let server = try ServerProcess(database: directory.file("holdfast.db"))
        let body = #"""
            {"id":"7","variations":[{"key":"a","id":"71"},{"key":"b","id":"72"}],
            "ramp":{"steps":[{"traffic":1,"for":"1d"},{"traffic":100}]}}
            """#
        #expect(try server.request("PUT", "/v1/experiments/e", body).status == 201)
        let exposures = (0..<200).map { #"{"user_id":"u\#($0)","experiment":"e","variation_id":"71"}"# }
        #expect(try server.request("POST", "/v1/exposures", "[\(exposures.joined(separator: ","))]").status == 200)
        let deadline = ContinuousClock.now + .seconds(60)
        var shown = try server.request("GET", "/v1/experiments/e")
        while shown["status"] != "paused", .now < deadline { shown = try server.request("GET", "/v1/experiments/e") }
        #expect(shown["ramp"]["state"]["status"] == "stopped", "\(shown.text)")
        let entries = try server.request("GET", "/v1/audit?action=experiment.ramp")["entries"].array ?? []
        #expect(entries.first?["after"]["experiment"]["ramp"]["state"]["users"] == 200)
        server.stop()
    }

    @Test func `The process that commits what crosses a guardrail's bound pauses the experiment by itself`() throws {
        let directory = try TemporaryDirectory()
        let server = try ServerProcess(database: directory.file("holdfast.db"))
        let metric = #"{"kind":"conversion","goal":"checkout"}"#
        #expect(try server.request("PUT", "/v1/metrics/checkouts", metric).status == 201)
        let body = #"""
            {"id":"7","variations":[{"key":"a","id":"71"},{"key":"b","id":"72"}],
            "metrics":{"guardrails":[{"metric":"checkouts","margin":0.1}]},
            "ramp":{"steps":[{"traffic":1,"for":"1d"},{"traffic":100}]}}
            """#
        #expect(try server.request("PUT", "/v1/experiments/e", body).status == 201)
        func send(_ path: String, _ users: [Int], _ members: (Int) -> String) throws {
            let elements = users.map { #"{"user_id":"u\#($0)",\#(members($0))}"# }
            let sent = try server.request("POST", "/v1/\(path)", "[\(elements.joined(separator: ","))]")
            #expect(sent.status == 200 && !sent.text.contains("refused"), "\(sent.text)")
        }
        try send("exposures", Array(0..<800)) { #""experiment":"e","variation_id":"\#($0 % 2 == 0 ? 71 : 72)""# }
        // As many users of both do it.
        try send("events", Array(0..<200)) { _ in #""goal":"checkout""# }
        #expect(try server.request("GET", "/v1/experiments/e")["status"] == "running")
        try send("events", (200..<760).filter { $0 % 2 == 0 }) { _ in #""goal":"checkout""# }
        let deadline = ContinuousClock.now + .seconds(60)
        var shown = try server.request("GET", "/v1/experiments/e")
        while shown["status"] != "paused", .now < deadline { shown = try server.request("GET", "/v1/experiments/e") }
        #expect(shown["ramp"]["state"]["status"] == "stopped", "\(shown.text)")
        #expect(shown["ramp"]["state"]["reason"].string?.contains("the guardrail 'checkouts' is worse") == true)
        #expect(shown["ramp"]["state"]["users"] == 800)
        server.stop()
    }
}

import APITestSupport
import Foundation
import JSON
import ProcessTestSupport
import Testing

/// An edge at whose upstream's address something else responds, or the upstream as it was before.
@Suite struct EdgeGenerationTests {
    private let fixture: EdgeFixture
    private static let options = ["--upstream-timeout", "2s", "--max-lag", "3s"]

    init() throws {
        fixture = try EdgeFixture()
    }

    private func buy(_ user: String, at edge: ServerProcess) throws {
        let response = try edge.request("POST", "/v1/events", #"{"user_id":"\#(user)","goal":"bought"}"#)
        #expect(response.status == 200, "\(response.text)")
    }

    private func goals(of user: String) throws -> Int {
        let events = try fixture.upstream.request("GET", "/v1/profiles/\(user)/events").text
        return events.components(separatedBy: #""goal":"bought""#).count - 1
    }

    private func expectAllArrive(_ users: [String], from edge: ServerProcess) throws {
        try EdgeFixture.awaitUp(edge)
        #expect(try edge.awaitMetric("holdfast_edge_outbox_events") { $0 == 0 } == 0)
        for user in users { #expect(try goals(of: user) == 1, "\(user)") }
        #expect(try edge.metric("holdfast_edge_refused_events_total") == 0)
    }

    // MARK: Something else

    @Test(arguments: [
        ("200 OK", "Content-Type: text/html\r\n", "<html>We will be back</html>"), ("200 OK", "", ""),
        ("204 No Content", "", ""), ("304 Not Modified", "", ""),
        ("405 Not Allowed", "Content-Type: text/html\r\n", "<html>405</html>"),
        ("400 Bad Request", "", ""), ("410 Gone", "", "{}"), ("409 Conflict", "", "{}"),
        ("200 OK", "Content-Type: application/json\r\n", #"{"stored":1,"repeated":0,"taken":[1,2,3],"refused":[]}"#),
        ("200 OK", "Holdfast-Generation: nonsense\r\n", #"{"taken":[1,2,3],"refused":[]}"#),
    ])
    func `What is not Holdfast confirms and refuses nothing`(status: String, fields: String, body: String) throws {
        let edge = try fixture.edge("edge", Self.options)
        let known = try edge.assign("known")["variation_id"].string
        let impostor = try Impostor(status, fields, body: body)
        fixture.replaceUpstream(by: impostor.port)
        try EdgeFixture.awaitAway(edge)
        let users = (0..<20).map { "user\($0)" }
        for user in users { try buy(user, at: edge) }
        #expect(try edge.assign("known")["variation_id"].string == known)
        let results = try edge.request("GET", "/v1/experiments/checkout/results?goal=bought")
        #expect(results.status == 503, "\(results.text)")
        #expect(results.field("content-type") == "application/problem+json")
        #expect(try edge.request("POST", "/ups/save", #"{"user_id":"x","experiment_bucket_map":{}}"#).status == 503)
        #expect(try edge.request("GET", "/readyz").status == 200)
        #expect(
            try edge.awaits { try $0.request("GET", "/readyz").text.contains("something else does at its address") })
        // Nobody asks without a pause.
        let before = impostor.answered
        usleep(1_000_000)
        #expect(impostor.answered - before < 40)
        #expect(try edge.metric("holdfast_edge_outbox_events") >= users.count)
        fixture.replaceUpstream(by: fixture.upstream.port)
        try expectAllArrive(users, from: edge)
        edge.stop()
    }

    @Test func `Another Holdfast gets no events of an edge, and gives it no users`() throws {
        let edge = try fixture.edge("edge", Self.options)
        let known = try edge.assign("known")["variation_id"].string
        let other = try ServerProcess(database: fixture.directory.file("other.db"))
        #expect(try other.request("PUT", "/v1/experiments/checkout", AssignSamples.definition).status == 201)
        _ = try other.assign("stranger")
        fixture.replaceUpstream(by: other.port)
        try EdgeFixture.awaitAway(edge)
        let users = (0..<20).map { "user\($0)" }
        for user in users { try buy(user, at: edge) }
        #expect(try edge.assign("known")["variation_id"].string == known)
        #expect(try edge.stored("stranger") == nil)
        #expect(try edge.awaits { try $0.request("GET", "/readyz").text.contains("another Holdfast responds") })
        #expect(try other.request("GET", "/v1/events").text.isEmpty)
        fixture.replaceUpstream(by: fixture.upstream.port)
        try expectAllArrive(users, from: edge)
        edge.stop()
    }

    @Test func `An edge of an edge says that it cannot be one`() throws {
        let edge = try fixture.edge()
        let second = try ServerProcess(
            database: fixture.directory.file("second.db"), ["--upstream", "http://127.0.0.1:\(edge.port)"])
        #expect(second.child.errors.first { $0.contains("it is that of another edge") } != nil)
        #expect(try second.awaits { try $0.request("GET", "/readyz").text.contains("it is that of another edge") })
        edge.stop()
    }

    // MARK: A restored upstream

    /// Has the upstream's database be as it was before some changes, in one of the ways in which that happens.
    enum Return: CaseIterable {
        case restore, copiedBack
    }

    @Test(arguments: Return.allCases)
    func `An edge follows an upstream that was restored, with its definitions and users`(way: Return) throws {
        let edge = try fixture.edge("edge", Self.options)
        func define(_ control: Int, _ new: Int) throws {
            let response = try fixture.upstream.request(
                "PUT", "/v1/experiments/checkout?moves=allow", AssignSamples.weights(control, new))
            #expect(response.status == 200, "\(response.text)")
        }
        try define(100, 0)
        let kept = (0..<20).map { "kept\($0)" }
        for user in kept { _ = try edge.assign(user) }
        let file = fixture.directory.file("upstream.db")
        let backup = fixture.directory.file("backup.db")
        #expect(try Command("backup", "--database", file, backup).end == .exit(0))
        // What is gone afterwards: other users, other definitions, as many of them.
        let lost = (0..<20).map { "lost\($0)" }
        for user in lost { _ = try edge.assign(user) }
        try define(0, 100)
        #expect(try edge.awaits { try $0.assign("last")["variation_id"].string == "70012" })
        fixture.upstream.stop()
        switch way {
        case .restore: #expect(try Command("restore", "--database", file, backup).end == .exit(0))
        case .copiedBack:
            for suffix in ["", "-wal", "-shm"] { try? FileManager.default.removeItem(atPath: file + suffix) }
            try FileManager.default.copyItem(atPath: backup, toPath: file)
        }
        try fixture.restartUpstream()
        #expect(edge.child.errors.first { $0.contains("copying all users") && !$0.contains("the file is new") } != nil)
        try EdgeFixture.awaitUp(edge)
        for number in 0..<20 {
            // With weight 0 nobody gets what was defined after the backup.
            let user = "new\(number)"
            let response = try edge.assign(user)
            #expect(response["variation_id"].string == "70011", "\(response.text)")
            #expect(try fixture.upstream.stored(user) == "70011")
        }
        for user in kept + lost + ["last"] {
            #expect(try edge.awaits { try $0.stored(user) == (try fixture.upstream.stored(user)) }, "\(user)")
        }
        #expect(try edge.request("GET", "/readyz").json == ["status": "ready"])
        try buy("after", at: edge)
        try expectAllArrive(["after"], from: edge)
        edge.stop()
    }
}

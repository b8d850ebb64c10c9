import Bucketing
import Foundation
import JSON
import Testing

/// Holdfast as clients of Optimizely Agent see it.
@Suite struct AgentTests {
    private let directory: TemporaryDirectory
    private let server: ServerProcess

    init() throws {
        directory = try TemporaryDirectory()
        server = try ServerProcess(database: directory.file("holdfast.db"))
    }

    private func runScript(_ name: String, _ arguments: String...) throws {
        let python = try PythonEnvironment.sdk.interpreter.get()
        let script = "\(PythonEnvironment.scripts)/\(name)"
        let child = try ChildProcess(python, [script, "http://127.0.0.1:\(server.port)"] + arguments)
        let end = child.wait()
        #expect(end == .exit(0), "\(child.output.text)\(child.errors.text)")
    }

    @Test(.enabled(if: PythonEnvironment.sdk.canBeMade, "Python's packages cannot be installed here"))
    func `A client of the Agent finds every endpoint as it knows it`() throws {
        try runScript("agent_client.py")
    }

    @Test(.enabled(if: PythonEnvironment.sdk.canBeMade, "Python's packages cannot be installed here"))
    func `The reference's vectors are decided alike over HTTP`() throws {
        let tests = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        try runScript("agent_vectors.py", tests.appendingPathComponent("BucketingTests/Vectors").path)
    }

    private static let datafile = #"""
        {"version":"4","accountId":"1","projectId":"2","revision":"1","attributes":[],"audiences":[],"groups":[],
        "featureFlags":[],"rollouts":[],"events":[{"id":"e1","key":"purchase","experimentIds":[]}],
        "experiments":[{"id":"7","key":"checkout","layerId":"8","status":"Running","audienceIds":[],
        "forcedVariations":{},"variations":[{"id":"71","key":"control"},{"id":"72","key":"new"}],
        "trafficAllocation":[{"entityId":"71","endOfRange":10000}]}]}
        """#
    private static let fields = ["X-Optimizely-SDK-Key: tests", "Content-Type: application/json"]

    private func putDatafile() throws {
        let answer = try server.client().request("PUT", "/v1/datafile", Self.datafile, fields: Self.fields)
        #expect(answer.status == 201)
    }

    private static func post(_ server: ServerProcess, _ target: String, _ body: String) throws -> Answer {
        try server.client().request("POST", target, body, fields: fields)
    }

    /// The variation of the experiment `checkout`.
    private static func variation(of user: String, at server: ServerProcess) throws -> String? {
        let answer = try post(server, "/v1/activate?experimentKey=checkout", #"{"userId":"\#(user)"}"#)
        return answer.json.array?.first?["variationKey"].string
    }

    @Test func `What an override forces is decided by other processes on the database, and after a restart`() throws {
        try putDatafile()
        let other = try ServerProcess(database: directory.file("holdfast.db"))
        #expect(try Self.variation(of: "eva", at: other) == "control")
        let body = #"{"userId":"eva","experimentKey":"checkout","variationKey":"new"}"#
        #expect(try Self.post(server, "/v1/override", body).status == 200)
        #expect(try Self.variation(of: "eva", at: server) == "new")
        let deadline = ContinuousClock.now + .seconds(5)
        while try Self.variation(of: "eva", at: other) != "new", ContinuousClock.now < deadline {}
        #expect(try Self.variation(of: "eva", at: other) == "new")
        #expect(try Self.variation(of: "bob", at: other) == "control")
        other.stop()
        let restarted = try ServerProcess(database: directory.file("holdfast.db"))
        #expect(try Self.variation(of: "eva", at: restarted) == "new")
        let back = try Self.post(restarted, "/v1/override", #"{"userId":"eva","experimentKey":"checkout"}"#)
        #expect(back["prevVariationKey"] == "new")
        #expect(try Self.variation(of: "eva", at: restarted) == "control")
        restarted.stop()
        server.stop()
    }

    @Test func `A request that reaches no handler is refused in the Agent's format below the Agent's paths`() throws {
        let wrongMethod = try server.request("GET", "/v1/decide")
        #expect(wrongMethod.status == 405)
        #expect(wrongMethod.field("allow")?.contains("POST") == true)
        #expect(wrongMethod["error"].string?.contains("POST") == true)
        let client = try server.client()
        try client.send("POST /v1/activate HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\n")
        let tooLarge = try client.receive()
        #expect(tooLarge.status == 413)
        #expect(tooLarge["error"].string != nil)
        #expect(try server.request("GET", "/v1/assigns")["title"] == "Not Found")
        #expect(try server.request("POST", "/v1/profiles/ann", "{}")["title"] == "Method Not Allowed")
        server.stop()
    }

    @Test(arguments: ["7-a", ""]) func `A datafile is refused whose ids no profile can hold`(id: String) throws {
        let datafile = Self.datafile.replacing("\"id\":\"7\"", with: "\"id\":\"\(id)\"")
        let answer = try server.client().request("PUT", "/v1/datafile", datafile, fields: Self.fields)
        #expect(answer.status == 400)
        #expect(answer["detail"].string?.contains("checkout") == true)
        server.stop()
    }

    @Test func `What was forced for a user is gone when the erasure is answered`() throws {
        try putDatafile()
        for user in (0..<10).map({ "eva\($0)" }) {
            let body = #"{"userId":"\#(user)","experimentKey":"checkout","variationKey":"new"}"#
            #expect(try Self.post(server, "/v1/override", body).status == 200)
            #expect(try server.request("DELETE", "/v1/profiles/\(user)").status == 204)
            #expect(try Self.variation(of: user, at: server) == "control")
        }
        server.stop()
    }

    private func text(_ sql: String) throws -> String {
        try DatabaseConnection(directory.file("holdfast.db")).text(sql)
    }

    @Test func `A conversion whose request was answered survives kill -9`() throws {
        try putDatafile()
        let body = #"{"userId":"ada","userAttributes":{"plan":"gold"},"eventTags":{"revenue":42}}"#
        #expect(try Self.post(server, "/v1/track?eventKey=purchase", body).status == 200)
        server.kill()
        let payload = #"{"event_id":"e1","tags":{"revenue":42},"attributes":{"plan":"gold"}}"#
        let stored = try text("SELECT sdk_key || ' ' || user_id || ' ' || goal || ' ' || value || ' ' || payload FROM goal_events")
        #expect(stored == "tests ada purchase 42.0 " + payload)
    }

    @Test func `An impression is stored when the server stops, unless tracking is disabled`() throws {
        try putDatafile()
        #expect(try Self.post(server, "/v1/activate?experimentKey=checkout", #"{"userId":"ada"}"#).status == 200)
        let untracked = "/v1/activate?experimentKey=checkout&disableTracking=true"
        #expect(try Self.post(server, untracked, #"{"userId":"bob"}"#).status == 200)
        server.stop()
        let payload = #"{"variation_key":"control","flag_key":"","rule_type":"experiment","source":"bucketed"}"#
        let stored = try text(
            """
            SELECT group_concat(sdk_key || ' ' || user_id || ' ' || experiment_id || ' ' || experiment_key || ' '
            || variation_id || ' ' || flags || ' ' || payload) FROM exposures
            """)
        #expect(stored == "tests ada 7 checkout 71 0 " + payload)
    }

    @Test func `Each operation of a batch needs its own scope`() throws {
        let tokens = "write app write-secret-0123456789\nadmin on-call admin-secret-0123456789\n"
        let guarded = try ServerProcess(
            database: directory.file("guarded.db"), ["--tokens-file", directory.write(tokens, to: "tokens")])
        let client = try guarded.client()
        let admin = "admin-secret-0123456789"
        #expect(try client.request("PUT", "/v1/datafile", Self.datafile, token: admin, fields: Self.fields).status == 201)
        func batch(_ authorization: String) -> String {
            let headers =
                #"{"X-Optimizely-SDK-Key":"tests","Content-Type":"application/json"\#(authorization)}"#
            return #"""
                {"operations":[{"method":"POST","url":"/v1/override","operationID":"1","headers":\#(headers),
                "body":{"userId":"eva","experimentKey":"checkout"}},
                {"method":"GET","url":"/v1/config","operationID":"2","headers":\#(headers)}]}
                """#
        }
        func statuses(_ body: String, token: String) throws -> [JSONValue] {
            let answer = try client.request("POST", "/v1/batch", body, token: token)
            return answer["response"].array?.map { $0["status"] } ?? []
        }
        #expect(try statuses(batch(""), token: "write-secret-0123456789") == [403, 200])
        #expect(try statuses(batch(""), token: admin) == [200, 200])
        let own = batch(#","authorization":"Bearer \#(admin)""#)
        #expect(try statuses(own, token: "write-secret-0123456789") == [200, 200])
        #expect(try statuses(batch(#","authorization":"Bearer x""#), token: admin) == [401, 401])
        guarded.stop()
    }
}

import APITestSupport
import JSON
import Testing

/// `serve --read-only`, for the last step of a move.
@Suite struct ReadOnlyTests {
    private let directory: TemporaryDirectory
    private let server: ServerProcess

    private static let agent = ["X-Optimizely-SDK-Key: default", "Content-Type: application/json"]

    init() throws {
        directory = try TemporaryDirectory()
        let path = directory.file("holdfast.db")
        let former = try ServerProcess(database: path)
        let experiment = #"{"id":"7","variations":["a","b"]}"#
        #expect(try former.request("PUT", "/v1/experiments/checkout", experiment).status < 300)
        #expect(try former.request("POST", "/v1/assign", Self.ask("ada")).status == 200)
        former.stop()
        server = try ServerProcess(database: path, ["--read-only"])
    }

    private static func ask(_ user: String) -> String {
        #"{"user_id":"\#(user)","experiment":"checkout"}"#
    }

    @Test(arguments: [
        ("POST", "/ups/save", profile("new", ["7": "v"])), ("PUT", "/v1/profiles/ada", profile("ada")),
        ("DELETE", "/v1/profiles/ada", ""), ("POST", "/v1/profiles/ada/merge", #"{"from":"eve"}"#),
        ("PUT", "/v1/profiles/ada/experiments/7", #"{"variation_key":"b"}"#),
        ("PUT", "/v1/experiments/other", #"{"variations":["a","b"]}"#),
        ("PUT", "/v1/attributes/country", #"{"type":"country"}"#),
        ("POST", "/v1/exposures", ask("ada")), ("POST", "/v1/events", #"{"user_id":"ada","goal":"buy"}"#),
        ("PATCH", "/v1/sticky/id/ada", #"{"assignments":{"checkout__0":"b"}}"#),
    ])
    func `A change gets 503, which says why and when to try again`(
        method: String, target: String, body: String
    ) throws {
        let response = try server.request(method, target, body.isEmpty ? nil : body)
        #expect(response.status == 503, "\(method) \(target): \(response.text)")
        #expect(response.field("retry-after") == "5")
        let problem = "the server must accept changes; it is read-only while its database is moved"
        #expect(response["detail"].string?.hasPrefix(problem) == true, "\(response.text)")
        #expect(try server.request("GET", "/v1/profiles/ada").status == 200)
    }

    @Test func `Everything is read, and the server is ready`() throws {
        for target in [
            "/readyz", "/v1/profiles/ada", "/v1/profiles", "/v1/experiments",
            "/v1/experiments/checkout/results?goal=buy",
            "/v1/audit", "/v1/exposures", "/datafiles/default.json",
        ] { #expect(try server.request("GET", target).status == 200, "\(target)") }
    }

    @Test func `Who has a variation gets it, and an assignment that could not be kept is refused`() throws {
        let assigned = try server.request("POST", "/v1/assign", Self.ask("ada"))
        #expect(assigned.status == 200)
        #expect(assigned["source"] == "stored")
        #expect(try server.request("POST", "/v1/assign", Self.ask("new")).status == 503)
    }

    @Test func `A decision for a new user is the same each time, and leaves no trace`() throws {
        let decisions = try (0..<3).map { _ in
            let response = try server.request(
                "POST", "/v1/decide?keys=checkout", #"{"userId":"new"}"#, fields: Self.agent)
            #expect(response.status == 200, "\(response.text)")
            return response["variationKey"].string ?? ""
        }
        #expect(Set(decisions).count == 1 && decisions[0] != "")
        let evaluated = try server.request("POST", "/v1/evaluations", #"{"user_id":"new"}"#)
        #expect(evaluated["evaluations"].array?.first?["variation_key"].string == decisions[0], "\(evaluated.text)")
        #expect(try server.request("GET", "/v1/profiles/new").status == 404)
        #expect(try server.request("GET", "/v1/exposures").text == "")
        server.stop()
    }
}

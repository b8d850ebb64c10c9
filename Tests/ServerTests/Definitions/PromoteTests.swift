import APITestSupport
import Foundation
import JSON
import ProcessTestSupport
import Testing

/// `holdfast promote`: from project to project of one server, and from server to server.
@Suite struct PromoteTests {
    private let directory: TemporaryDirectory

    init() throws {
        directory = try TemporaryDirectory()
    }

    private func start(_ name: String, _ options: [String] = []) throws -> ServerProcess {
        try ServerProcess(database: directory.file("\(name).db"), options)
    }

    private func url(_ server: ServerProcess) -> String { "http://127.0.0.1:\(server.port)" }

    private func promote(
        _ server: ServerProcess, _ arguments: String..., environment: [String: String] = [:]
    ) throws -> Command {
        try Command(
            ["promote"] + arguments,
            environment: ["HOLDFAST_URL": url(server)].merging(environment) { $1 })
    }

    @discardableResult
    private func put(
        _ server: ServerProcess, _ path: String, _ body: String, sdkKey: String? = nil, status: Int = 201
    ) throws -> TestResponse {
        let fields = sdkKey.map { ["X-Optimizely-SDK-Key: \($0)"] } ?? []
        let response = try server.request("PUT", path, body, fields: fields)
        #expect(response.status == status, "\(path): \(response.text)")
        return response
    }

    private func experiment(_ server: ServerProcess, _ key: String, sdkKey: String) throws -> TestResponse {
        try server.request("GET", "/v1/experiments/\(key)", fields: ["X-Optimizely-SDK-Key: \(sdkKey)"])
    }

    private func projects(_ server: ServerProcess) throws {
        for key in ["stage", "shop"] { try put(server, "/v1/projects/\(key)", "{}") }
    }

    @Test func `Within a server the target keeps its ids and its users, and new experiments get new ids`() throws {
        let server = try start("a")
        try projects(server)
        let stage = #"{"id":"7001","variations":[{"key":"control","id":"71"},{"key":"new","id":"72"}],"name":"Faster"}"#
        try put(server, "/v1/experiments/checkout", stage, sdkKey: "stage")
        try put(server, "/v1/experiments/banner", #"{"id":"7002","variations":["a","b"]}"#, sdkKey: "stage")
        let own = #"{"id":"8001","variations":[{"key":"control","id":"81"},{"key":"new","id":"82"}]}"#
        try put(server, "/v1/experiments/checkout", own, sdkKey: "shop")
        let ask = #"{"user_id":"ada","experiment":"checkout"}"#
        let field = ["X-Optimizely-SDK-Key: shop"]
        let before = try server.request("POST", "/v1/assign", ask, fields: field)["variation_id"]

        let plan = try promote(server, "--from", "stage", "--to", "shop")
        #expect(plan.end == .exit(2), "\(plan.errors)")
        #expect(plan.output.contains("~ experiment checkout\n    name: none -> \"Faster\"\n"), "\(plan.output)")
        #expect(plan.output.contains("+ experiment banner\n"))
        #expect(plan.output.contains("1 to create, 1 to change, 0 to remove"))
        #expect(plan.output.contains("no enrolled user would move"))
        #expect(try experiment(server, "banner", sdkKey: "shop").status == 404)

        let done = try promote(server, "--from", "stage", "--to", "shop", "--apply")
        #expect(done.end == .exit(0), "\(done.errors)")
        let promoted = try experiment(server, "checkout", sdkKey: "shop")
        #expect(promoted["name"] == "Faster")
        #expect(promoted["id"] == "8001")
        #expect(promoted["variations"].array?.map { $0["id"].string } == ["81", "82"])
        let banner = try experiment(server, "banner", sdkKey: "shop")["id"].string
        #expect(banner != nil && banner != "7002")
        #expect(try server.request("POST", "/v1/assign", ask, fields: field)["variation_id"] == before)
        let again = try promote(server, "--from", "stage", "--to", "shop")
        #expect(again.end == .exit(0) && again.output == "nothing to change", "\(again.output)")
    }

    @Test func `To another server ids go along, except where it has its own`() throws {
        let (staging, production) = (try start("a"), try start("b"))
        try put(staging, "/v1/experiments/checkout", #"{"id":"7001","variations":["control","new"],"owner":"ann"}"#)
        try put(staging, "/v1/experiments/banner", #"{"id":"7002","variations":["a","b"]}"#)
        try put(production, "/v1/experiments/checkout", #"{"id":"9001","variations":["control","new"]}"#)
        let wrong = try promote(
            staging, "--from", url(staging), "--to", url(production) + "#prod", "experiment:banner")
        #expect(wrong.end == .exit(1))
        #expect(wrong.errors.contains("'prod'"), "\(wrong.errors)")

        let file = directory.file("plan.json")
        let kept = try promote(staging, "--from", url(staging), "--to", url(production), "--out", file)
        #expect(kept.end == .exit(2), "\(kept.errors)")
        let applied = try Command("apply", file, environment: ["HOLDFAST_URL": url(production)])
        #expect(applied.end == .exit(0), "\(applied.errors)")
        let checkout = try production.request("GET", "/v1/experiments/checkout")
        #expect(checkout["id"] == "9001" && checkout["owner"] == "ann")
        #expect(try production.request("GET", "/v1/experiments/banner")["id"] == "7002")
    }

    @Test func `A selection carries what it names, with the rules of a flag`() throws {
        let server = try start("a")
        try projects(server)
        try put(server, "/v1/metrics/orders", #"{"kind":"count","goal":"purchase"}"#, sdkKey: "stage")
        let flag = #"""
            {"type":"string","enabled":true,"variations":[{"key":"a","value":"1"},{"key":"b","value":"2"}],"otherwise":"a",
            "rules":[{"key":"colors","experiment":{"weights":{"a":1,"b":1}}}]}
            """#
        try put(server, "/v1/flags/theme", flag, sdkKey: "stage")
        try put(
            server, "/v1/experiments/colors", #"{"metrics":{"primary":["orders"]}}"#, sdkKey: "stage", status: 200)
        try put(server, "/v1/experiments/other", #"{"variations":["a","b"]}"#, sdkKey: "stage")
        let lacking = try promote(server, "flag:theme", "--from", "stage", "--to", "shop")
        #expect(lacking.end == .exit(1))
        #expect(lacking.errors.contains("orders"), "\(lacking.errors)")
        let done = try promote(server, "metric:orders", "flag:theme", "--from", "stage", "--to", "shop", "--apply")
        #expect(done.end == .exit(0), "\(done.errors)")
        let colors = try experiment(server, "colors", sdkKey: "shop")
        #expect(colors["metrics"]["primary"].array?.first == "orders", "\(colors.text)")
        #expect(try experiment(server, "other", sdkKey: "shop").status == 404)
    }

    @Test func `Each server is asked with its own token`() throws {
        let tokens = try directory.write("admin boss secret-of-production-0123\n", to: "tokens")
        let (staging, production) = (try start("a"), try start("b", ["--tokens-file", tokens]))
        try put(staging, "/v1/experiments/checkout", #"{"variations":["control","new"]}"#)
        let arguments = ["--from", url(staging), "--to", url(production), "--apply"]
        let refused = try Command(["promote"] + arguments)
        #expect(refused.end == .exit(1))
        #expect(refused.errors.contains("refuses"), "\(refused.errors)")
        let done = try Command(
            ["promote"] + arguments, environment: ["HOLDFAST_TO_TOKEN": "secret-of-production-0123"])
        #expect(done.end == .exit(0), "\(done.errors)")
    }

    @Test func `What needs a second person waits, says so and exits with 3, and is made once it is approved`() throws {
        let (ann, bob) = ("ann-secret-0123456789", "bob-secret-0123456789")
        let tokens = try directory.write("admin ann \(ann)\nadmin bob \(bob)\n", to: "people.tokens")
        let server = try start("a", ["--tokens-file", tokens, "--approvals", "2"])
        func ask(_ method: String, _ path: String, _ body: String?, _ token: String, in sdkKey: String? = nil) throws
            -> TestResponse
        {
            let fields = sdkKey.map { ["X-Optimizely-SDK-Key: \($0)"] } ?? []
            return try server.client().request(method, path, body, token: token, fields: fields)
        }
        for (key, traffic) in [("stage", 50), ("shop", 20)] {
            #expect(try ask("PUT", "/v1/projects/\(key)", "{}", ann).status == 201)
            let body = #"{"variations":["control","new"],"traffic":\#(traffic)}"#
            #expect(try ask("PUT", "/v1/experiments/checkout", body, ann, in: key).status == 201)
        }
        func promote() throws -> Command {
            try self.promote(
                server, "--from", "stage", "--to", "shop", "--apply", environment: ["HOLDFAST_TOKEN": ann])
        }
        for _ in 0..<2 {
            let held = try promote()
            #expect(held.end == .exit(3), "\(held)")
            #expect(
                held.output.hasPrefix(
                    "changes running experiments (checkout): waits for another person, POST /v1/proposals/"),
                "\(held)")
            #expect(try ask("GET", "/v1/experiments/checkout", nil, ann, in: "shop")["traffic"] == 20)
        }
        // The same request is one proposal.
        let list = try ask("GET", "/v1/proposals", nil, bob, in: "shop")["proposals"].array ?? []
        #expect(list.count == 1)
        let path = "/v1/proposals/\(list.first?["id"].string ?? "")/approve"
        #expect(try ask("POST", path, nil, bob).status == 200)
        #expect(try ask("GET", "/v1/experiments/checkout", nil, ann, in: "shop")["traffic"] == 50)
        let again = try promote()
        #expect(again.end == .exit(0) && again.output == "nothing to change", "\(again)")
    }

    @Test(arguments: [
        (["--from", "a", "--to", "a"], "--from and --to must differ; got 'a' twice"),
        (["--from", "a/b", "--to", "a"], "--from must be an SDK key, or the URL of a server"),
        (["--from", "a", "--to", "b", "--apply", "--out", "x"], "--out writes a plan that is applied later"),
        (["x", "--from", "stage", "--to", "shop"], "what to carry must be KIND:KEY with a kind of attribute, segment"),
        (["flag:x", "--from", "stage", "--to", "shop", "--prune"], "cannot be used with a selection"),
        (["flag:x", "--from", "stage", "--to", "shop"], "stage must have the flag 'x'; it has none"),
        (["--from", "stage", "--to", "nowhere"], "the definitions of nowhere cannot be read"),
    ])
    func `A wrong call says what is required`(arguments: [String], error: String) throws {
        let server = try start("a")
        try projects(server)
        let command = try Command(["promote"] + arguments, environment: ["HOLDFAST_URL": url(server)])
        #expect(command.end == .exit(1))
        #expect(command.errors.contains(error), "\(command.errors)")
    }
}

import APITestSupport
import JSON
import Testing

/// Remote evaluation for GrowthBook's SDKs. The real SDK is in `PythonClientTests`.
@Suite struct GrowthBookTests {
    private static let secret = "client-secret-0123456789"

    private func startServer(tokens: Bool = false) throws -> any TestServer {
        let lines = "client app \(Self.secret)\nread backup read-secret-0123456789\nadmin ops admin-secret-0123456789\n"
        let server = try startTestServer(tokens: tokens ? lines : nil)
        let admin = tokens ? ["Authorization: Bearer admin-secret-0123456789"] : []
        #expect(try server.request("PUT", "/v1/datafile", OFREPTests.datafile(), fields: admin).status == 201)
        return server
    }

    private func evaluate(
        _ server: any TestServer, _ body: String, key: String = "shop", fields: [String] = []
    ) throws -> TestResponse {
        try server.request("POST", "/api/eval/\(key)", body, fields: fields)
    }

    private func user(_ id: String, _ more: String = "") -> String { #"{"attributes":{"id":"\#(id)"\#(more)}}"# }

    @Test func `A feature's only rule forces the value, in its type, for the audience of the user`() throws {
        let server = try startServer()
        let response = try evaluate(server, user("ann", #","country":"de""#))
        #expect(response.status == 200)
        #expect(response.field("x-sse-support") == "enabled")
        let features = response["features"]
        #expect(features["word"] == ["defaultValue": "blue", "rules": [["force": "blue"]]])
        #expect(features["shape"]["rules"].array?.first?["force"] == ["a": [1, 2.5]])
        #expect(features["german"]["defaultValue"] == true)
        #expect(response["experiments"] == [])
        #expect(response["dateUpdated"].string?.hasSuffix("Z") == true)
        #expect(try evaluate(server, user("ann"))["features"]["german"]["defaultValue"] == false)
        server.stop()
    }

    @Test func `An experiment is reported with the result, and without the values of other variations`() throws {
        let server = try startServer()
        let response = try evaluate(server, user("listed"))
        let track = try #require(response["features"]["tested"]["rules"].array?.first?["tracks"].array?.first)
        #expect(track["experiment"] == ["key": "test", "variations": [[:], true]])
        #expect(
            track["result"] == [
                "featureId": "tested", "inExperiment": true, "hashUsed": false, "stickyBucketUsed": false,
                "hashAttribute": "id", "hashValue": "listed", "variationId": 1, "key": "b", "value": true,
            ])
        server.stop()
    }

    @Test(arguments: ["{}", #"{"id":""}"#, #"{"id":null,"country":"de"}"#])
    func `A visitor without an id gets what needs no user, and is enrolled in nothing`(attributes: String) throws {
        let server = try startServer()
        let response = try evaluate(server, #"{"attributes":\#(attributes)}"#)
        #expect(response.status == 200, "\(response.text)")
        let features = response["features"]
        #expect(features["word"] == ["defaultValue": "blue", "rules": [["force": "blue"]]])
        #expect(features["german"]["defaultValue"] == .bool(attributes.contains("de")))
        #expect(features["tested"]["rules"].array?.first?["tracks"].array == nil)
        #expect(try server.request("GET", "/v1/profiles").text.isEmpty)
        server.stop()
    }

    @Test func `The hash attribute is the one that the experiment hashes`() throws {
        let server = try startServer()
        let response = try evaluate(server, user("ann", #","$opt_bucketing_id":"household""#))
        let track = try #require(response["features"]["tested"]["rules"].array?.first?["tracks"].array?.first)
        #expect(track["result"]["hashAttribute"] == "$opt_bucketing_id" && track["result"]["hashValue"] == "household")
        server.stop()
    }

    @Test func `A forced feature has its value, and enrolls nobody`() throws {
        let server = try startServer()
        let body = #"{"attributes":{"id":"listed"},"forcedFeatures":[["tested","x"],["nope",1]]}"#
        let features = try evaluate(server, body)["features"]
        #expect(features["tested"] == ["defaultValue": "x", "rules": [["force": "x"]]])
        #expect(features["word"]["defaultValue"] == "blue" && features["nope"].object == nil)
        #expect(try server.request("GET", "/v1/profiles/listed").status == 404)
        server.stop()
    }

    @Test func `Users are enrolled and keep their variations, and no exposure is recorded`() throws {
        let server = try startServer()
        func results() throws -> [JSONValue] {
            try (0..<20).map { number in
                let feature = try evaluate(server, user("u\(number)"))["features"]["tested"]
                return feature["rules"].array?.first?["tracks"].array?.first?["result"] ?? .null
            }
        }
        let first = try results()
        #expect(Set(first.map { $0["key"].string }) == ["a", "b"])
        #expect(first.allSatisfy { $0["hashUsed"] == true && $0["stickyBucketUsed"] == false })
        let changed = OFREPTests.datafile(weights: 10_000, revision: 2)
        #expect(try server.request("PUT", "/v1/datafile", changed).status == 200)
        let second = try results()
        #expect(second.map { $0["key"] } == first.map { $0["key"] })
        #expect(second.allSatisfy { $0["stickyBucketUsed"] == true })
        #expect(try server.request("GET", "/v1/exposures").text.isEmpty)
        server.stop()
    }

    @Test(arguments: [
        ("[]", "a request must be an object; got an array"),
        ("{}", "`attributes` must be an object; got nothing, at /attributes"),
        (
            #"{"attributes":{"id":1.5}}"#,
            "the attribute `id` must be the user's id, a string or a whole number; got a number, at /attributes/id"
        ),
        (
            #"{"attributes":{"id":"a"},"forcedFeatures":[["x"]]}"#,
            "a forced feature must be an array of its key and its value; got an array, at /forcedFeatures/0"
        ),
    ])
    func `A request without a user is refused`(body: String, error: String) throws {
        let server = try startServer()
        let response = try evaluate(server, body)
        #expect(response.status == 400)
        #expect(response.json == ["status": 400, "error": .string(error)])
        #expect(try evaluate(server, #"{"attributes":{"id":7}}"#).status == 200)
        server.stop()
    }

    @Test func `The client key names the project where no token is asked for`() throws {
        let server = try startServer()
        let response = try evaluate(server, user("ann"), key: "other")
        #expect(response.status == 404)
        #expect(response["status"] == 404 && response["error"].string?.contains("other") == true)
        server.stop()
    }

    @Test func `The client key is the secret of a token, unless a header field has one`() throws {
        let server = try startServer(tokens: true)
        let (ann, secret) = (user("ann"), Self.secret)
        #expect(try evaluate(server, ann, key: secret).status == 200)
        #expect(try evaluate(server, ann, key: secret, fields: ["X-Optimizely-SDK-Key: nope"]).status == 404)
        #expect(try evaluate(server, ann, fields: ["Authorization: Bearer \(secret)"]).status == 200)
        #expect(try evaluate(server, ann, key: "nope", fields: ["X-API-Key: \(secret)"]).status == 404)
        #expect(try evaluate(server, ann).status == 401)
        #expect(try evaluate(server, ann, key: "read-secret-0123456789").status == 403)
        #expect(try server.request("GET", "/sub/shop").status == 401)
        server.stop()
    }

    @Test func `A stream has an event after each change, and what was missed`() throws {
        let server = try startServer()
        let stream = try server.stream("GET", "/sub/shop")
        #expect(stream.head.status == 200 && stream.head.field("content-type") == "text/event-stream")
        let changed = OFREPTests.datafile(weights: 10_000, revision: 2)
        #expect(try server.request("PUT", "/v1/datafile", changed).status == 200)
        let event = "id: 2\nevent: features-updated\ndata: {}\n\n"
        #expect(try stream.receiveChunk() == event)
        let later = try server.stream("GET", "/sub/shop", fields: ["Last-Event-ID: 1"])
        #expect(try later.receiveChunk() == event)
        server.stop()
    }
}

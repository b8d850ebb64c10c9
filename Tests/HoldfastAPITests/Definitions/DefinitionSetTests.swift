import APITestSupport
import JSON
import Testing

/// `/v1/definitions`: everything that a project defines, applied as a whole.
@Suite struct DefinitionSetTests {
    private let server: any TestServer

    init() throws {
        server = try startTestServer()
    }

    /// Each names what comes after it.
    private static let definitions = #"""
        {"holdouts":[{"key":"all","share":0,"flags":["banner","checkout"]}],
        "flags":[{"key":"banner","type":"boolean","rules":[{"audience":[{"segment":"germans"}],"variation":"off"},
        {"experiment":{"weights":{"off":1,"on":1},"traffic":50}}]},{"key":"checkout","description":"of an experiment"}],
        "experiments":[{"key":"banner_experiment","hypothesis":"More clicks","metrics":{"primary":["orders"]}},
        {"key":"checkout","variations":["control",{"key":"new"}],"traffic":60,"group":"page","audience":[{"segment":"germans"}]},
        {"key":"old","variations":["a","b"],"status":"concluded","conclusion":{"winner":"b","reason":"better"}}],
        "metrics":[{"key":"orders","kind":"conversion","goal":"order"}],
        "segments":[{"name":"germans","conditions":{"name":"country","value":"de"}}],
        "attributes":[{"name":"country","type":"country"}]}
        """#

    @discardableResult
    private func apply(_ body: String, _ query: String = "", fields: [String] = []) throws -> TestResponse {
        try server.request("PUT", "/v1/definitions\(query)", body, fields: fields)
    }

    private func read() throws -> JSONValue { try server.request("GET", "/v1/definitions").json }

    private func changes(_ response: TestResponse) -> [String] {
        #expect(response.status == 200, "\(response.text)")
        return (response["changes"].array ?? []).map {
            "\($0["action"].string ?? "") \($0["kind"].string ?? "") \($0["key"].string ?? "")"
        }
    }

    private func auditedActions() throws -> [String] {
        try server.request("GET", "/v1/audit")["entries"].array?.compactMap { $0["action"].string } ?? []
    }

    @Test func `A server without definitions has empty lists of each kind`() throws {
        let empty: JSONValue = [
            "attributes": [], "segments": [], "metrics": [], "groups": [], "experiments": [], "flags": [],
            "holdouts": [],
        ]
        #expect(try read() == empty)
    }

    @Test
    func
        `Definitions are applied in any order, with one entry in the audit log each, and a second time change nothing`()
        throws
    {
        let preview = try server.request("POST", "/v1/definitions/preview", Self.definitions)
        #expect(preview["moves"]["users"] == 0)
        #expect(try read()["experiments"] == [])
        let applied = try apply(Self.definitions)
        let expected = [
            "create attribute country", "create segment germans", "create metric orders",
            "create experiment banner_experiment", "create experiment checkout", "create experiment old",
            "create flag banner", "create flag checkout", "create holdout all",
        ]
        #expect(changes(applied) == expected)
        #expect(changes(preview) == expected)
        #expect(applied["revision"] == "1")
        #expect(
            Set(try auditedActions()) == [
                "attribute.put", "segment.put", "metric.put", "experiment.put", "experiment.conclude", "flag.put",
                "holdout.put",
            ])
        let count = try auditedActions().count
        #expect(count == expected.count)
        let tag = try server.request("GET", "/v1/definitions").field("etag")
        for body in [Self.definitions, String(decoding: try read().encoded(), as: UTF8.self)] {
            let again = try apply(body)
            #expect(changes(again) == [])
            #expect(again["revision"] == "1")
        }
        #expect(try server.request("GET", "/v1/definitions").field("etag") == tag)
        #expect(try auditedActions().count == count)
        #expect(try server.request("GET", "/v1/experiments/old")["conclusion"]["winner"] == "b")
        #expect(try server.request("GET", "/v1/experiments/banner_experiment")["hypothesis"] == "More clicks")
        #expect(try server.request("GET", "/v1/flags/checkout")["description"] == "of an experiment")
    }

    @Test func `Everything that is wrong is told with its place, and nothing is applied`() throws {
        let response = try apply(
            #"""
            {"attributes":[{"name":"plan","type":"string"}],"segments":[{"name":"s","conditions":{"name":"plam","value":"x"}}],
            "experiments":[{"key":"a","variations":["x"],"trafic":5},{"key":"b","variations":["x"],"metrics":{"primary":["m"]}},
            {"key":"c","variations":["x","y"],"status":"concluded"}],"flags":[{"key":"f"}]}
            """#)
        #expect(response.status == 422)
        let pointers = response["errors"].array?.map { $0["pointer"] }
        #expect(
            pointers == [
                "/segments/0/conditions/name", "/experiments/0/trafic", "/experiments/1/metrics/primary/0",
                "/experiments/2/conclusion", "/flags/0/type",
            ], "\(response.text)")
        let empty = try read()
        #expect(empty["attributes"] == [] && empty["experiments"] == [])
        #expect(try auditedActions().isEmpty)
        for body in [#"{"experiment":[]}"#, "[]", #"{"experiments":{}}"#, #"{"experiments":[{"variations":["a"]}]}"#] {
            #expect([400, 422].contains(try apply(body).status), "\(body)")
        }
        let twice = try apply(#"{"metrics":[{"key":"m"},{"key":"m"}]}"#)
        #expect(twice["pointer"] == "/metrics/1/key", "\(twice.text)")
    }

    @Test func `What can move users who take part is refused with their number, and shown by the preview`() throws {
        try apply(#"{"experiments":[{"key":"e","variations":["a","b"]}],"flags":[{"key":"f","type":"boolean"}]}"#)
        for user in 0..<20 {
            try server.request("POST", "/v1/assign", #"{"user_id":"u\#(user)","experiment":"e"}"#)
        }
        let body = #"{"experiments":[{"key":"e","variations":["a"]}],"flags":[{"key":"f","enabled":false}]}"#
        let moved = try server.request("POST", "/v1/definitions/preview", body)["moves"]["users"]
        #expect((3...17).contains(moved.integer ?? 0))
        let refused = try apply(body)
        #expect(refused.status == 409 && refused["moves"]["users"] == moved, "\(refused.text)")
        #expect(try server.request("GET", "/v1/flags/f")["enabled"] == true)
        #expect(changes(try apply(body, "?moves=allow")) == ["change experiment e", "change flag f"])
    }

    @Test func `A segment that changes moves users of other projects, too`() throws {
        for key in ["default", "app"] { try server.request("PUT", "/v1/projects/\(key)", "{}") }
        let plain = #""attributes":[{"name":"plan","type":"string"}]"#
        func segment(_ value: String) -> String {
            #""segments":[{"name":"s","conditions":{"name":"plan","value":"\#(value)"}}]"#
        }
        try apply("{\(plain),\(segment("none"))}")
        let app = ["X-Optimizely-SDK-Key: app"]
        try apply(
            #"""
            {"flags":[{"key":"f","type":"string","variations":[{"key":"x","value":"x"},{"key":"y","value":"y"},{"key":"z","value":"z"}],
            "rules":[{"key":"first","audience":[{"segment":"s"}],"experiment":{"weights":{"x":1}}},
            {"key":"second","experiment":{"weights":{"y":1}}}]}]}
            """#, fields: app)
        try server.request("PATCH", "/v1/profiles/ada/attributes", #"{"plan":"free"}"#)
        try server.request("POST", "/v1/evaluations", #"{"user_id":"ada","flag_keys":["f"]}"#, fields: app)
        let refused = try apply("{\(segment("free"))}")
        #expect(refused.status == 409 && refused["moves"]["users"] == 1, "\(refused.text)")
        #expect(try apply("{\(segment("free"))}", "?moves=allow").status == 200)
    }

    @Test func `If-Match keeps two people from overwriting each other`() throws {
        try apply(Self.definitions)
        let tag = try #require(try server.request("GET", "/v1/definitions").field("etag"))
        try server.request("PUT", "/v1/attributes/plan", #"{"type":"string"}"#)
        let body = #"{"experiments":[{"key":"checkout","name":"Checkout"}]}"#
        #expect(try apply(body, fields: ["If-Match: \(tag)"]).status == 412)
        let now = try #require(try server.request("GET", "/v1/definitions").field("etag"))
        #expect(try apply(body, fields: ["If-Match: \(now)"]).status == 200)
    }

    @Test func `The schema describes the definitions, and everything to which it refers`() throws {
        let schema = try server.request("GET", "/v1/definitions/schema.json")
        #expect(
            schema["properties"]["experiments"]["items"]["allOf"].array?.first?["$ref"]
                == "#/$defs/ExperimentDefinition")
        let references = schema.text.matches(of: #/"#/\$defs/([A-Za-z]+)"/#).map { String($0.output.1) }
        #expect(references.count > 8 && !schema.text.contains("#/components"))
        for name in references { #expect(schema["$defs"][name].object != nil, "\(name)") }
    }
}

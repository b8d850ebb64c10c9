import APITestSupport
import JSON
import Testing

/// `GET /openfeature/v0/manifest`, which the OpenFeature CLI pulls.
@Suite struct OpenFeatureManifestTests {
    private static let path = "/openfeature/v0/manifest"

    @Test func `Each flag has its type and default, as far as the format has types`() throws {
        let server = try startTestServer()
        let empty = try server.request("GET", Self.path)
        #expect(empty.status == 200 && empty["flags"] == [])
        let definitions = #"""
            {"flags":[{"key":"banner","type":"boolean","description":"On the front page"},
            {"key":"text","type":"string","variations":[{"key":"a","value":"x"},{"key":"b","value":"y"}],"otherwise":"b"},
            {"key":"columns","type":"integer","variations":[{"key":"a","value":3}]},
            {"key":"rate","type":"double","variations":[{"key":"a","value":3}]},
            {"key":"theme","type":"json","variations":[{"key":"a","value":{"dark":true}}]},
            {"key":"list","type":"json","variations":[{"key":"a","value":[]}]}],
            "experiments":[{"key":"checkout","variations":["control","new"]},{"key":"old","variations":["a"],"status":"archived"}]}
            """#
        #expect(try server.request("PUT", "/v1/definitions", definitions).status == 200)
        let manifest = try server.request("GET", Self.path)
        #expect(manifest.field("x-manifest-capabilities") == "read")
        let flags = (manifest["flags"].array ?? []).sorted { $0["key"].string ?? "" < $1["key"].string ?? "" }
        #expect(
            flags == [
                ["key": "banner", "type": "boolean", "defaultValue": false, "description": "On the front page"],
                ["key": "checkout", "type": "string", "defaultValue": "control"],
                ["key": "columns", "type": "integer", "defaultValue": 3],
                ["key": "rate", "type": "float", "defaultValue": 3],
                ["key": "text", "type": "string", "defaultValue": "y"],
                ["key": "theme", "type": "object", "defaultValue": ["dark": true]],
            ], "\(manifest.text)")
        expectValid(flags)
    }

    /// Checks what the published schema requires, by which `PythonClientTests` validates a manifest.
    private func expectValid(_ flags: [JSONValue]) {
        let keys = flags.map { $0["key"].string ?? "" }
        #expect(Set(keys).count == keys.count && !keys.contains(""))
        for flag in flags {
            let value = flag["defaultValue"]
            let isValid =
                switch flag["type"].string {
                case "boolean": value.bool != nil
                case "string": value.string != nil
                case "integer": value.integer != nil
                case "float": value.double != nil
                case "object": !value.isNull
                default: false
                }
            #expect(isValid, "\(flag)")
            #expect(flag["description"].isNull || flag["description"].string != nil)
            let members = Set(flag.object?.map(\.key) ?? [])
            #expect(members.isSubset(of: ["key", "type", "defaultValue", "description"]), "\(members)")
        }
    }

    @Test func `A flag of a datafile has the default of its variables`() throws {
        let server = try startTestServer()
        #expect(try server.request("PUT", "/v1/datafile", OFREPTests.datafile()).status == 201)
        let flags = try server.request("GET", Self.path)["flags"].array ?? []
        expectValid(flags)
        let defaults = flags.map {
            "\($0["key"].string ?? "") \(String(decoding: $0["defaultValue"].encoded(), as: UTF8.self))"
        }
        #expect(
            Set(defaults).isSuperset(of: [
                "switch true", #"word "blue""#, "count 1", #"shape {"a":[1,2.5]}"#, "off false", "tested false",
            ]), "\(defaults)")
    }

    @Test func `Errors have the format of the contract`() throws {
        let server = try startTestServer(tokens: "client app first-secret-0001\nread ci second-secret-0002\n")
        for (token, status) in [(nil, 401), ("first-secret-0001", 403)] as [(String?, Int64)] {
            let refused = try server.request("GET", Self.path, token: token)
            #expect(refused.status == Int(status) && refused["error"]["status"] == .integer(status), "\(refused.text)")
            #expect(refused["error"]["message"].string?.isEmpty == false)
        }
        #expect(try server.request("GET", Self.path, token: "second-secret-0002").status == 200)
        #expect(
            try server.request("GET", "/openfeature/v0/other", token: "second-secret-0002")["error"]["status"] == 404)
    }
}

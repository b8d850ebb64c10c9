import APITestSupport
import JSON
import Testing

/// `If-Match` and `If-None-Match` of changes of profiles and assignments (RFC 9110 §13).
@Suite struct ConditionalChangeTests {
    private let server: any TestServer

    init() throws {
        server = try startTestServer()
    }

    private func tag(_ target: String) throws -> String {
        try #require(try server.request("GET", target).field("etag"))
    }

    private func map(_ variation: String) -> String {
        #"{"experiment_bucket_map":{"7":{"variation_id":"\#(variation)"}}}"#
    }

    @Test(arguments: ["", "?detail=true"])
    func `Who names the profile that was read changes no other`(query: String) throws {
        let target = "/v1/profiles/ada"
        func change(_ method: String, _ body: String?, _ field: String) throws -> Int {
            try server.request(method, target, body, fields: [field]).status
        }
        #expect(try change("PUT", map("a"), "If-Match: *") == 412)
        #expect(try change("PATCH", map("a"), "If-Match: \"0123456789abcdef\"") == 412)
        #expect(try change("DELETE", nil, "If-Match: *") == 412)
        #expect(try server.request("GET", target).status == 404)
        #expect(try change("PUT", map("a"), "If-None-Match: *") == 201)
        #expect(try change("PATCH", map("b"), "If-None-Match: *") == 412)
        let first = try tag(target + query)
        #expect(try change("PUT", map("b"), "If-None-Match: \"x\", \(first)") == 412)
        #expect(try change("PUT", map("b"), "If-Match: W/\(first)") == 412, "weak tags never match")
        #expect(try change("PUT", map("b"), "If-Match: \"0123456789abcdef\", \(first)") == 200)
        #expect(try change("PATCH", map("c"), "If-Match: \(first)") == 412)
        #expect(try change("DELETE", nil, "If-Match: \(first)") == 412)
        #expect(try server.request("GET", target)["experiment_bucket_map"]["7"]["variation_id"] == "b")
        #expect(try change("PATCH", map("c"), "If-Match: \(try tag(target + query))") == 200)
        #expect(try change("DELETE", nil, "If-Match: \(try tag(target + query))") == 200)
        #expect(try server.request("GET", target).status == 404)
    }

    /// RFC 9110 §13.1.1: a request whose condition does not hold must not be performed. Who cannot check it refuses it.
    @Test func `No route ignores the condition of a change`() throws {
        let document = try server.request("GET", "/openapi.json").json
        for route in try #require(document["paths"].object) {
            let (path, methods) = (route.key, try #require(route.value.object))
            let target = path.replacing(#/\{\w+\}/#, with: "x")
            for method in methods where method.key != "parameters" {
                let (name, operation) = (method.key, method.value)
                guard name != "get" || path == "/ups/save", path != "/v1/send-odp-event" else { continue }
                let references: [String] = operation["parameters"].array?.compactMap { $0["$ref"].string } ?? []
                func refuses(_ field: String) throws -> Bool {
                    let response = try server.request(
                        name.uppercased(), target, "{}", fields: [field, "Content-Type: application/json"])
                    guard response.status == 501 else { return false }
                    #expect(response.text.contains("; nothing was done"), "\(response.text)")
                    if let help = response["help"].string { #expect(help == "/manual/Profiles#conditional-changes") }
                    return true
                }
                let supports = (
                    match: references.contains("#/components/parameters/IfMatch"),
                    noneMatch: references.contains { $0.hasPrefix("#/components/parameters/IfNoneMatch") }
                )
                #expect(try refuses(#"If-Match: "wrong""#) == !supports.match, "\(name) \(path)")
                #expect(try refuses("If-None-Match: *") == !supports.noneMatch, "\(name) \(path)")
            }
        }
        #expect(try server.request("GET", "/v1/users").text.contains("\"x\"") == false)
    }

    @Test func `A read of what has changed since is refused in the format of its protocol`() throws {
        #expect(try server.request("PUT", "/v1/profiles/ada", map("a")).status == 201)
        #expect(try server.request("PUT", "/v1/experiments/x", #"{"variations":["a"]}"#).status == 201)
        for target in ["/v1/profiles/ada", "/v1/experiments/x", "/datafiles/default.json", "/openapi.json"] {
            let tag = try tag(target)
            #expect(try server.request("GET", target, fields: ["If-Match: \(tag)"]).status == 200)
            #expect(try server.request("GET", target, fields: ["If-Match: \(tag)", "If-None-Match: *"]).status == 304)
            let refused = try server.request("GET", target, fields: ["If-Match: \"x\"", "If-None-Match: \(tag)"])
            #expect(refused.status == 412)
            #expect(refused["status"] == 412)
            #expect(try server.request("HEAD", target, fields: ["If-Match: \"x\""]).status == 412)
        }
        // The response to this one is 404 whatever the condition says (RFC 9110 §13.2.1).
        #expect(try server.request("GET", "/v1/profiles/eve", fields: ["If-Match: *"]).status == 404)
        let config = try server.request(
            "GET", "/v1/datafile", fields: ["If-Match: \"x\"", "X-Optimizely-SDK-Key: default"])
        #expect(config.status == 412 && config["error"].string != nil)
    }

    @Test func `Who names the assignment that was read changes no other, and one that is known is 304`() throws {
        let target = "/v1/profiles/ada/experiments/7"
        func change(_ method: String, _ body: String?, _ field: String) throws -> Int {
            try server.request(method, target, body, fields: [field]).status
        }
        func override(_ variation: String) -> String { #"{"variation_id":"\#(variation)"}"# }
        #expect(try server.request("PUT", "/v1/profiles/ada", map("a")).status == 201)
        let saved = try tag(target)
        #expect(try server.request("GET", target, fields: ["If-None-Match: \(saved)"]).status == 304)
        #expect(try change("PUT", override("b"), "If-None-Match: *") == 412)
        #expect(try change("PUT", override("b"), "If-Match: \(saved)") == 200)
        #expect(try change("PUT", override("c"), "If-Match: \(saved)") == 412)
        #expect(try change("DELETE", nil, "If-Match: \(saved)") == 412)
        #expect(try server.request("GET", target, fields: ["If-None-Match: \(saved)"])["variation_id"] == "b")
        let overridden = try tag(target)
        #expect(overridden != saved)
        // Another experiment of the user is of no concern.
        #expect(
            try server.request("PATCH", "/v1/profiles/ada", #"{"experiment_bucket_map":{"8":{"variation_id":"x"}}}"#)
                .status == 200)
        #expect(try change("DELETE", nil, "If-Match: \(overridden)") == 204)
        #expect(try tag(target) == saved)
        #expect(try change("DELETE", nil, "If-Match: \(saved)") == 204)
        #expect(try change("PUT", override("d"), "If-Match: *") == 412)
        #expect(try change("PUT", override("d"), "If-None-Match: *") == 200)
        let entries = try server.request("GET", "/v1/audit")["entries"].array ?? []
        #expect(entries.count == 4, "a change that was refused is not recorded")
    }
}

import APITestSupport
import Foundation
import JSON
import Testing

/// An override is a layer: it has author, reason and expiry, and gives back what is beneath it.
@Suite struct OverrideTests {
    private static let tokens = "admin on-call admin-secret-0123456789\nwrite shop write-secret-0123456789\n"
    private static let end = "2999-01-31T12:00:00.000Z"
    private static let target = "/v1/profiles/ann/experiments/checkout"

    private let server: any TestServer

    init() throws {
        server = try startTestServer(tokens: Self.tokens)
        try ask("PUT", "/v1/experiments/checkout", #"{"variations":["old","new"],"traffic":100}"#)
    }

    @discardableResult
    private func ask(_ method: String, _ target: String, _ body: String? = nil) throws -> TestResponse {
        let response = try server.request(method, target, body, token: "admin-secret-0123456789")
        #expect((200..<300).contains(response.status), "\(method) \(target): \(response.text)")
        return response
    }

    private func assign() throws -> JSONValue {
        try ask("POST", "/v1/assign", #"{"user_id":"ann","experiment":"checkout"}"#)["variation_key"]
    }

    @Test func `A removed override gives back what the user had, even if the split has changed`() throws {
        try ask(
            "PUT", "/v1/experiments/checkout", #"{"variations":[{"key":"old","weight":1},{"key":"new","weight":0}]}"#)
        #expect(try assign() == "old")
        let before = try ask("GET", Self.target).text
        try ask(
            "PUT", "/v1/experiments/checkout", #"{"variations":[{"key":"old","weight":0},{"key":"new","weight":1}]}"#)
        try ask("PUT", Self.target, #"{"variation_key":"new"}"#)
        #expect(try assign() == "new")
        try ask("DELETE", Self.target)
        #expect(try ask("GET", Self.target).text == before)
        #expect(try assign() == "old")
        server.stop()
    }

    @Test func `An override to a variation that is gone is skipped in every protocol, not what is beneath`() throws {
        try ask(
            "PUT", "/v1/experiments/checkout",
            #"{"variations":[{"key":"old","weight":1},{"key":"new","weight":0},{"key":"third","weight":0}]}"#)
        #expect(try assign() == "old")
        let before = try ask("GET", Self.target)["assigned_at"]
        try ask("PUT", Self.target, #"{"variation_key":"third"}"#)
        // Whoever were bucketed anew would get the other variation.
        try ask(
            "PUT", "/v1/experiments/checkout?moves=allow",
            #"{"variations":[{"key":"old","weight":0},{"key":"new","weight":1}]}"#)
        #expect(try assign() == "old")
        let decided = try server.request(
            "POST", "/v1/decide?keys=checkout", #"{"userId":"ann"}"#, token: "admin-secret-0123456789",
            fields: ["X-Optimizely-SDK-Key: default", "Content-Type: application/json"])
        #expect(decided["variationKey"] == "old")
        let flag = try ask("POST", "/ofrep/v1/evaluate/flags/checkout", #"{"context":{"targetingKey":"ann"}}"#)
        #expect(flag["variant"] == "old")
        let evaluated = try ask("POST", "/v1/evaluations", #"{"user_id":"ann","flag_keys":["checkout"]}"#)
        #expect(evaluated["evaluations"].array?.first?["variation_key"] == "old", "\(evaluated.text)")
        let steps = try ask("GET", "\(Self.target)/explain")["steps"].array ?? []
        #expect(steps.last?["step"] == "stored_assignment" && steps.last?["result"] == "applies")
        #expect(steps.first { $0["step"] == "override" }?["result"] == "gone")
        #expect(steps.last?["source"] == "bucketed" && steps.last?["assigned_at"] == before)
        // The override is still there for an admin.
        #expect(try ask("GET", Self.target)["source"] == "override")
        server.stop()
    }

    @Test func `An override of a misspelt key is refused with the key, and stored only if the caller says so`() throws {
        let admin = "admin-secret-0123456789"
        for name in ["checkot", "chekcout", "Checkouts", "checkoutxy"] {
            let target = "/v1/profiles/ann/experiments/\(name)"
            let refused = try server.request("PUT", target, #"{"variation_id":"a"}"#, token: admin)
            #expect(refused.status == 404, "\(name)")
            #expect(refused["detail"].string?.contains("did you mean 'checkout'? ?unknown=allow") == true)
            #expect(try server.request("GET", "/v1/profiles/ann", token: admin).status == 404)
        }
        #expect(try ask("PUT", "/v1/profiles/ann/experiments/77", #"{"variation_id":"a"}"#)["known"] == false)
        #expect(try ask("PUT", "/v1/profiles/ann/experiments/basket", #"{"variation_id":"a"}"#)["known"] == false)
        let stored = try ask("PUT", "/v1/profiles/ann/experiments/checkot?unknown=allow", #"{"variation_id":"a"}"#)
        #expect(stored["known"] == false)
        let typo = try server.request(
            "PUT", "/v1/profiles/ann/experiments/checkot?unknown=yes", #"{"variation_id":"a"}"#, token: admin)
        #expect(typo.status == 400)
    }

    @Test func `An override shows author, reason, expiry and what is beneath, wherever its origin is shown`() throws {
        _ = try assign()
        let beneath = try ask("GET", Self.target).json
        let body = #"{"variation_key":"new","reason":"ticket 7","expires_at":"2999-01-31T13:00:00+01:00"}"#
        let set = try ask("PUT", Self.target, body).json
        let explained = try ask("GET", "\(Self.target)/explain")["steps"].array?.last
        let detail = try ask("GET", "/v1/profiles/ann?detail=true")["experiment_bucket_map"]
        let id = try #require(set["experiment_id"].string)
        let exported = try ask("GET", "/v1/profiles?detail=true").json["experiment_bucket_map"][id]
        for shown in [set, try ask("GET", Self.target).json, try #require(explained), detail[id], exported] {
            #expect(shown["source"] == "override" && shown["author"] == "on-call")
            #expect(shown["reason"] == "ticket 7" && shown["expires_at"].string == Self.end)
            #expect(shown["beneath"]["variation_id"] == beneath["variation_id"])
            #expect(shown["beneath"]["source"] == "bucketed")
            #expect(shown["beneath"]["assigned_at"] == beneath["assigned_at"])
        }
        let entry = try ask("GET", "/v1/audit?action=override.set")["entries"].array?.first
        #expect(entry?["after"]["reason"] == "ticket 7" && entry?["after"]["expires_at"].string == Self.end)
        // Clients see none of this.
        #expect(
            try ask("POST", "/ups/lookup", #"{"user_id":"ann"}"#).text
                == profile("ann", [id: try #require(set["variation_id"].string)]))
        server.stop()
    }

    @Test func `An override without reason and expiry has null for them`() throws {
        let set = try ask("PUT", Self.target, #"{"variation_key":"new","reason":null,"expires_at":null}"#).json
        for member in ["reason", "expires_at", "beneath"] { #expect(set.object?[member] == .null) }
        server.stop()
    }

    // MARK: Export and import

    /// Puts something of every kind into a server.
    private func fill() throws -> String {
        try ask("POST", "/ups/save", profile("ada", ["11": "1", "22": "2"]))
        try ask("POST", "/ups/save", profile("bob", ["11": "1"]))
        try ask("POST", "/v1/profiles/ada/merge", #"{"from":"bob"}"#)
        try ask("POST", "/ups/save", profile("cleo", ["33": "3"]))
        try ask("POST", "/v1/profiles/dora/merge", #"{"from":"cleo"}"#)
        try ask("PUT", "/v1/profiles/empty", profile("empty"))
        _ = try assign()
        try ask("PUT", Self.target, #"{"variation_key":"new","reason":"ticket 7 \"ü\"","expires_at":"\#(Self.end)"}"#)
        try ask("PUT", "/v1/profiles/eve/experiments/44", #"{"variation_id":"4"}"#)
        return try ask("GET", "/v1/profiles?detail=true").text
    }

    @Test func `What an export with detail wrote is imported as it was`() throws {
        let exported = try fill()
        let other = try startTestServer(tokens: Self.tokens)
        let imported = try other.request("POST", "/v1/profiles", exported, token: "admin-secret-0123456789")
        #expect(imported["imported"] == 5 && imported["refused"] == 0, "\(imported.text)")
        let again = try other.request("GET", "/v1/profiles?detail=true", token: "admin-secret-0123456789")
        #expect(again.text == exported)
        let entries = try other.request("GET", "/v1/audit", token: "admin-secret-0123456789")["entries"].array
        #expect(entries?.map { $0["action"] } == ["override.set", "override.set"])
        // Each line by itself, into a server that has it, changes nothing.
        let repeated = try other.request("POST", "/v1/profiles", exported, token: "admin-secret-0123456789")
        #expect(repeated["imported"] == 5)
        #expect(try other.request("GET", "/v1/audit", token: "admin-secret-0123456789")["entries"].array?.count == 2)
        other.stop()
        server.stop()
    }

    @Test func `Only an admin imports an override`() throws {
        let exported = try fill()
        let other = try startTestServer(tokens: Self.tokens)
        let imported = try other.request("POST", "/v1/profiles", exported, token: "write-secret-0123456789")
        #expect(imported["imported"] == 3 && imported["refused"] == 2)
        let error = imported["errors"].array?.first
        #expect(error?["detail"] == "an override must be imported with a token of the scope admin")
        #expect(error?["pointer"].string?.hasSuffix("/source") == true)
        let rest = try other.request("GET", "/v1/profiles?detail=true", token: "admin-secret-0123456789").text
        #expect(!rest.contains("override") && rest.contains("merged"))
        other.stop()
        server.stop()
    }

    @Test(arguments: [
        (#""source":"given""#, "/source"), (#""assigned_at":"now""#, "/assigned_at"),
        (#""updated_at":7"#, "/updated_at"),
        (#""expires_at":true"#, "/expires_at"), (#""beneath":[]"#, "/beneath"), (#""reason":"""#, "/reason"),
        (#""beneath":{"variation_id":"1"}"#, "/beneath/source"), (#""author":1"#, "/author"),
        (
            #""beneath":{"variation_id":"1","source":"override","assigned_at":"2026-01-31T12:00:00Z","#
                + #""updated_at":"2026-01-31T12:00:00Z"}"#, "/beneath/source"
        ),
    ])
    func `A line with a wrong origin is refused with the place`(member: String, place: String) throws {
        var members = [
            "variation_id": #""1""#, "source": #""override""#, "assigned_at": #""2026-01-31T12:00:00Z""#,
            "updated_at": #""2026-01-31T12:00:00Z""#,
        ]
        let parts = member.split(separator: ":", maxSplits: 1)
        members[parts[0].filter { $0 != "\"" }] = String(parts[1])
        let entry = members.sorted { $0.key < $1.key }.map { #""\#($0.key)":\#($0.value)"# }.joined(separator: ",")
        let line = #"{"user_id":"ann","experiment_bucket_map":{"11":{\#(entry)}}}"#
        let refused = try server.request("POST", "/v1/profiles", line, token: "admin-secret-0123456789")
        #expect(refused.status == 422)
        #expect(
            refused["errors"].array?.first?["pointer"].string == "/experiment_bucket_map/11" + place, "\(refused.text)")
        server.stop()
    }

    @Test func `A line without the origin is saved, and one may have both kinds`() throws {
        let origin =
            #""source":"bucketed","assigned_at":"2026-01-31T12:00:00.000Z","updated_at":"2026-01-31T12:00:00.000Z""#
        let line =
            #"{"user_id":"ann","experiment_bucket_map":{"11":{"variation_id":"1","source":"bucketed"},"#
            + #""22":{"variation_id":"2",\#(origin)}}}"#
        try ask("POST", "/v1/profiles", line)
        let map = try ask("GET", "/v1/profiles/ann?detail=true")["experiment_bucket_map"]
        #expect(map["11"]["source"] == "saved" && map["22"]["source"] == "bucketed")
        #expect(map["22"]["assigned_at"] == "2026-01-31T12:00:00.000Z")
        server.stop()
    }
}

import APITestSupport
import JSON
import Storage
import TestSupport
import Testing

@testable import HoldfastAPI

/// `/v1/webhooks`: who may make them, and what they may be.
@Suite struct WebhookEndpointTests {
    private let server: any TestServer
    private static let all = "unbound-secret-0123456789"
    private static let shop = "shop-secret-0123456789"

    init() throws {
        server = try startTestServer(
            tokens: "admin all \(Self.all)\nadmin shop \(Self.shop) projects=shop\nwrite app write-secret-0123456789\n")
        for key in ["shop", "app"] { #expect(try ask("PUT", "/v1/projects/\(key)", "{}").status < 300) }
    }

    private func ask(
        _ method: String, _ target: String, _ body: String? = nil, token: String = all
    ) throws -> TestResponse {
        try server.request(method, target, body, token: token)
    }

    @Test func `What GET returns PUT accepts, and the secret is shown once`() throws {
        let body = #"{"url":"https://ops.example/x?y=1","events":["experiment.*","flag.put"],"sdk_key":"app"}"#
        let made = try ask("PUT", "/v1/webhooks/ops", body)
        #expect(made.status == 201 && made["secret"].string?.hasPrefix("whsec_") == true, "\(made.text)")
        let shown = try ask("GET", "/v1/webhooks/ops")
        #expect(shown["secret"] == .null && shown["url"] == "https://ops.example/x?y=1" && shown["sdk_key"] == "app")
        #expect(shown["state"]["status"] == "active" && shown["format"] == "standard")
        let repeated = try ask("PUT", "/v1/webhooks/ops", shown.text)
        #expect(repeated.status == 200 && repeated.text == shown.text)
        // What is left out stays.
        let changed = try ask("PUT", "/v1/webhooks/ops", #"{"enabled":false}"#)
        #expect(changed["state"]["status"] == "disabled" && changed["events"] == shown["events"])
        #expect(try ask("GET", "/v1/webhooks")["webhooks"].array?.count == 1)
        let rotated = try ask("POST", "/v1/webhooks/ops/rotate")
        #expect(rotated["secret"].string.map { $0 != made["secret"].string } == true)
        #expect(try ask("DELETE", "/v1/webhooks/ops").status == 204)
        #expect(try ask("GET", "/v1/webhooks/ops").status == 404)
        let audit = try ask("GET", "/v1/audit?target=ops").text
        for action in ["webhook.put", "webhook.rotate", "webhook.delete"] { #expect(audit.contains(action)) }
        #expect(audit.contains("https://ops.example") && !audit.contains("y=1") && !audit.contains("whsec_"))
    }

    @Test(arguments: [
        ("", "{}", 422, "a new webhook must have a `url`"),
        ("", #"{"url":"ftp://ops.example/"}"#, 422, "`url` must be an https URL"),
        ("", #"{"url":"https://user@ops.example/"}"#, 422, "without a user"),
        ("", #"{"url":"https://ops.example/#x"}"#, 422, "a fragment"),
        ("", #"{"url":"http://ops.example/"}"#, 422, "--webhook-private-addresses"),
        ("", #"{"url":"https://ops.example/","events":["experiment.putt"]}"#, 422, "did you mean 'experiment.put'?"),
        ("", #"{"url":"https://ops.example/","events":["exp*"]}"#, 422, "patterns such as experiment.*"),
        ("", #"{"url":"https://ops.example/","events":["override.set"]}"#, 422, "names of events"),
        ("", #"{"url":"https://ops.example/","events":[]}"#, 422, "at least one string"),
        ("", #"{"url":"https://ops.example/","format":"xml"}"#, 422, "standard, slack, teams"),
        ("", #"{"url":"https://ops.example/","enabled":"yes"}"#, 422, "true or false"),
        ("", #"{"url":"https://ops.example/","sdk_key":"nowhere"}"#, 422, "the SDK key of a project"),
        ("", #"{"url":"https://ops.example/","secret_file":"../tokens"}"#, 422, "the name of a file"),
        ("", #"{"url":"https://ops.example/","secret_file":"team"}"#, 422, "--webhook-secrets"),
        ("", #"{"url":"https://ops.example/","secret":"x"}"#, 422, "no members but"),
        ("?from=then", #"{"url":"https://ops.example/"}"#, 400, "`from` must be 'now'"),
    ])
    func `What cannot be used is refused`(query: String, body: String, status: Int, reason: String) throws {
        let response = try ask("PUT", "/v1/webhooks/ops\(query)", body)
        #expect(response.status == status && response.text.contains(reason), "\(response.text)")
        #expect(try ask("GET", "/v1/webhooks/ops").status == 404)
    }

    @Test(arguments: [
        (
            "proposal.put",
            "ann proposed a change of the experiments 'a', 'b' of the project 'shop'; it waits for approval (proposal '787d')."
        ),
        (
            "proposal.approve",
            "ann approved a change of the experiments 'a', 'b' of the project 'shop' (proposal '787d')."
        ),
        (
            "proposal.reject",
            "ann rejected a change of the experiments 'a', 'b' of the project 'shop' (proposal '787d')."
        ),
    ])
    func `A sentence about a proposal says what it changes`(action: String, sentence: String) throws {
        var entry = AuditEntry(
            id: 1, recordedAt: 0, author: Author(name: "ann"), action: action, userID: nil, target: "787d", before: nil,
            after: Array(#"{"experiments":["a","b"]}"#.utf8))
        entry.sdkKey = "shop"
        let body = try JSONParser().parse(WebhookMessage(entry, .standard, publicURL: nil).body)
        #expect(body.object?["data"]?.object?["sentence"]?.string == sentence)
    }

    @Test func `A token that is bound to a project makes webhooks for that project only`() throws {
        let url = #""url":"https://ops.example/""#
        for (key, member) in [("global", ""), ("other", #","sdk_key":"app""#)] {
            #expect(try ask("PUT", "/v1/webhooks/\(key)", "{\(url)\(member)}").status == 201)
        }
        let own = try ask("PUT", "/v1/webhooks/own", "{\(url)}", token: Self.shop)
        #expect(own.status == 201 && own["sdk_key"] == "shop", "\(own.text)")
        for member in [#"{"sdk_key":"app"}"#, #"{"sdk_key":null}"#] {
            #expect(try ask("PUT", "/v1/webhooks/own", member, token: Self.shop).status == 403)
        }
        for key in ["global", "other"] {
            for (method, path) in [("GET", ""), ("DELETE", ""), ("POST", "/rotate"), ("POST", "/test")] {
                #expect(try ask(method, "/v1/webhooks/\(key)\(path)", token: Self.shop).status == 403)
            }
            #expect(try ask("PUT", "/v1/webhooks/\(key)", "{\(url)}", token: Self.shop).status == 403)
        }
        let listed = try ask("GET", "/v1/webhooks", token: Self.shop)["webhooks"].array?.map { $0["key"] }
        #expect(listed == ["own"])
        #expect(try ask("GET", "/v1/webhooks", token: "write-secret-0123456789").status == 403)
    }
}

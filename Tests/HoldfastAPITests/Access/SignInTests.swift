import Chronology
import Foundation
import JSON
import Storage
import Testing

@testable import HoldfastAPI
@testable import HoldfastCore

/// Tokens of an identity provider, good ones and forged ones, made by `sign_in.py vectors` with PyJWT.
@Suite struct SignInTests {
    private struct Vectors {
        var now: Instant
        var keys: [UInt8]
        var scopes: String
        var tokens: [(name: String, token: String, reason: String?)]

        init() throws {
            let path = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
                .appendingPathComponent("Golden/sign-in.json")
            let object = try #require(try JSONParser().parse(Array(Data(contentsOf: path))).object)
            now = Instant(secondsSince1970: try #require(object["now"]?.integer))
            keys = try #require(object["keys"]).encoded()
            scopes = try #require(object["scopes"]?.string)
            tokens = try #require(object["tokens"]?.array).compactMap(\.object).map {
                (try #require($0["name"]?.string), try #require($0["token"]?.string), $0["reason"]?.string)
            }
        }
    }

    private let vectors: Vectors
    private let settings: IdentityProvider.Settings

    init() throws {
        vectors = try Vectors()
        var settings = IdentityProvider.Settings()
        settings.issuer = "https://id.example"
        settings.audience = "holdfast"
        settings.scopesClaim = "realm.roles"
        self.settings = settings
    }

    private func provider() throws -> IdentityProvider {
        try IdentityProvider(settings, keys: vectors.keys, scopes: vectors.scopes)
    }

    @Test func `A token is accepted only if its provider made it for this server, and it is valid now`() throws {
        let provider = try provider()
        #expect(vectors.tokens.count > 40)
        for vector in vectors.tokens {
            let outcome = Result { () throws(Problem) in
                try provider.token(vector.token[...], at: vectors.now) { $0 == "on-call" }
            }
            switch (outcome, vector.reason) {
            case (.success(let token), nil):
                #expect(token.name == "ann@example.com" && token.scope == .admin, "\(vector.name)")
            case (.failure(let problem), let reason?):
                #expect(problem.detail.contains(reason), "\(vector.name): \(problem.detail)")
            default: Issue.record("\(vector.name): \(outcome)")
            }
        }
    }

    @Test func `A token ends with its expiry, with its key and with the line that gave it the scope`() throws {
        let provider = try provider()
        let good = try #require(vectors.tokens.first { $0.reason == nil })
        let token = try provider.token(good.token[...], at: vectors.now) { _ in false }
        let person = try #require(token.person)
        #expect(token.expiresAt == vectors.now + .minutes(61))
        #expect(provider.admits(person))
        let narrower = try IdentityProvider(
            settings, keys: vectors.keys, scopes: "admin holdfast-admins projects=shop\nread everyone\n")
        #expect(!narrower.admits(person))
        let bound = try narrower.token(good.token[...], at: vectors.now) { _ in false }
        #expect(bound.projects == ProjectAccess(only: ["shop"]))
        let others = String(decoding: vectors.keys, as: UTF8.self).replacing("\"n\":\"", with: "\"n\":\"x")
        let keys = try IdentityProvider(settings, keys: Array(others.utf8), scopes: vectors.scopes)
        #expect(!keys.admits(person))
    }

    @Test(arguments: [
        "", "[]", "{}", #"{"keys":[]}"#, #"{"keys":[1]}"#, #"{"keys":[{"kty":"oct","k":"AAAA"}]}"#,
        #"{"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB"}]}"#, #"{"keys":[{"kty":"EC","crv":"P-256","x":"AA","y":"AA"}]}"#,
        #"{"keys":[{"kty":"EC","crv":"P-256","x":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA","y":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}]}"#,
        #"{"keys":[{"kty":"OKP","crv":"Ed25519","x":"AA=="}]}"#, #"{"keys":[],"keys":[]}"#,
    ])
    func `A set of keys without a usable one is refused`(set: String) throws {
        #expect(throws: IdentityFileError.self) {
            try IdentityProvider(settings, keys: Array(set.utf8), scopes: vectors.scopes)
        }
    }

    @Test func `A key that cannot be used is ignored, not the whole set`() throws {
        var set = try #require(try JSONParser().parse(vectors.keys).object)
        let keys = try #require(set["keys"]?.array)
        let others: [JSONValue] = [
            ["kty": "AKP", "alg": "ML-DSA-65", "pub": "AAAA"],
            ["kty": "RSA", "use": "enc", "alg": "RSA-OAEP", "n": "AQAB", "e": "AQAB"],
            ["kty": "RSA", "alg": "PS256", "n": "AQAB", "e": "AQAB"], ["kty": "RSA", "n": 1, "e": "AQAB"],
            ["kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"], ["kty": "EC", "crv": "P-521"], "no object", [:],
        ]
        set["keys"] = .array(others + keys)
        let provider = try IdentityProvider(settings, keys: JSONValue.object(set).encoded(), scopes: vectors.scopes)
        for vector in vectors.tokens where vector.reason == nil {
            #expect(throws: Never.self) { try provider.token(vector.token[...], at: vectors.now) { _ in false } }
        }
    }

    @Test func `Newer keys are asked for only if a token of the provider names one that is not known`() throws {
        let provider = try provider()
        let unknown = try IdentityProvider(settings, keys: nil, scopes: vectors.scopes)
        for vector in vectors.tokens {
            let isUnknown = vector.reason == "kid" && vector.name == "an unknown key"
            if vector.reason == nil { #expect(unknown.mayNeedNewerKeys(vector.token[...]), "\(vector.name)") }
            if vector.name == "another issuer" { #expect(!unknown.mayNeedNewerKeys(vector.token[...])) }
            guard vector.reason == nil || isUnknown else { continue }
            #expect(provider.mayNeedNewerKeys(vector.token[...]) == isUnknown, "\(vector.name)")
        }
    }

    @Test(arguments: ["", "# nothing\n", "root admins", "admin", "admin admins more", "admin admins projects=a,,b"])
    func `A map of scopes that says nothing, or something unknown, is refused`(map: String) throws {
        #expect(throws: IdentityFileError.self) { try IdentityProvider(settings, keys: vectors.keys, scopes: map) }
    }

    @Test func `Base64 for URLs has one text for bytes, and one decoding for a text`() {
        for bytes in [[], [0], [255, 254], [1, 2, 3], Array(0...255)] as [[UInt8]] {
            #expect(Base64URL.decode(Base64URL.encode(bytes).utf8) == bytes)
        }
        for text in ["A", "AB", "AAB", "AA=", "A+8", "A/8", "AAAAA"] { #expect(Base64URL.decode(text.utf8) == nil) }
    }
}

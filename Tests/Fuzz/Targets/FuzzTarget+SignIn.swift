import Chronology
import JSON
@testable import HoldfastAPI

extension FuzzTarget {
    /// No bytes but the signed ones are a token, and no set of keys makes the parser fail in another way than by refusing.
    static let signIn = FuzzTarget(name: "sign-in") { bytes in
        let text = String(decoding: bytes, as: UTF8.self)
        if let decoded = Base64URL.decode(bytes) {
            try expectSame(Base64URL.encode(decoded), text, "one text for bytes")
        }
        _ = try? IdentityProvider(settings, keys: bytes, scopes: "admin holdfast-admins")
        let provider = try IdentityProvider(settings, keys: Array(keys.utf8), scopes: "admin holdfast-admins")
        guard let token = try? provider.token(text[...], at: now, isTaken: { _ in false }) else { return }
        guard text == signed else { throw Finding("a token is accepted that was not signed: \(token.name)") }
    }

    private static let settings = {
        var settings = IdentityProvider.Settings()
        settings.issuer = "https://id.example"
        settings.audience = "holdfast"
        settings.scopesClaim = "realm.roles"
        return settings
    }()
    private static let now = Instant(milliseconds: 1_795_000_000_000)
    private static let keys =
        #"{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"ed","x":"rAuYQhqvznOhUCwQGBqVD9PsJ6HF8w1SBBuEP7ZP1oE"}]}"#
    private static let signed =
        "eyJhbGciOiJFZERTQSIsImtpZCI6ImVkIiwidHlwIjoiSldUIn0.eyJpc3MiOiJodHRwczovL2lkLmV4YW1wbGUiLCJhdWQiOlsi"
        + "b3RoZXIiLCJob2xkZmFzdCJdLCJzdWIiOiJhbm5AZXhhbXBsZS5jb20iLCJpYXQiOjE3OTUwMDAwMDAsIm5iZiI6MTc5NTAwMDAw"
        + "MCwiZXhwIjoxNzk1MDAzNjAwLCJyZWFsbSI6eyJyb2xlcyI6WyJzb21ldGhpbmciLCJob2xkZmFzdC1hZG1pbnMiXX19.N9UwKo1"
        + "YFD5uwB_Uz6iZYbGL1KH0W2FNYoEO7pzPh7qEYbyi99xuzCg39u-I4PVtSr0q9dwIDFGfSZLrXjXpAw"
}

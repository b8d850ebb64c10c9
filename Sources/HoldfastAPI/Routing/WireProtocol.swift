import HTTPServer
import HoldfastCore
import Storage

/// A protocol that clients speak, such as Holdfast's own REST API, OFREP, or the API of Optimizely Agent. It has the
/// routes, finds the token in a request, and renders errors in its format.
///
/// To add a protocol, add a folder with a type that conforms, and a line in ``HoldfastApplication``.
protocol WireProtocol {
    var routes: [APIRoute] { get }

    /// The path prefixes that belong only to this protocol, so that a 404 below them has its error format.
    var pathPrefixes: [String] { get }

    /// The secret of the access token that a request carries; `nil` if it has none.
    func credential(of request: borrowing Request) -> Substring?

    /// Renders an error of a handler, of a check before it, or of a request without a handler.
    ///
    /// - Parameter pattern: the pattern of the route; `nil` if no route has the path.
    func response(to error: any Error, on pattern: String?) -> Response
}

extension WireProtocol {
    var pathPrefixes: [String] { [] }

    /// Whether a path belongs to this protocol.
    func claims(_ path: some StringProtocol) -> Bool {
        pathPrefixes.contains { path == $0 || path.hasPrefix($0 + "/") }
    }

    func credential(of request: borrowing Request) -> Substring? {
        tokenSecret(authorization: request.field("authorization"), apiKey: request.field("x-api-key"))
    }

    func response(to error: any Error, on pattern: String?) -> Response {
        Problem(error).response(on: pattern)
    }
}

/// Returns the secret of a bearer token. Without one, returns the value of `X-API-Key`, because some clients cannot
/// send a bearer token.
func tokenSecret(authorization: String?, apiKey: String?) -> Substring? {
    authorization.flatMap(bearerSecret) ?? apiKey.flatMap { $0.isEmpty ? nil : $0[...] }
}

/// Returns the secret of an `Authorization` field with a bearer token (RFC 6750 §2.1). The name of the scheme is
/// case-insensitive (RFC 9110 §11.1).
func bearerSecret(_ value: String) -> Substring? {
    let scheme = "bearer "
    let length = scheme.utf8.count
    guard value.utf8.count > length, value.prefix(length).lowercased() == scheme else { return nil }
    return value.dropFirst(length).drop { $0 == " " }
}

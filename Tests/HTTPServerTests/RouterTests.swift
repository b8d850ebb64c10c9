import Testing

@testable import HTTPServer

@Suite struct RouterTests {
    private let router = Router(
        [
            (.get, "/"), (.get, "/users"), (.post, "/users"), (.get, "/users/{id}"), (.put, "/users/{id}"),
            (.post, "/users/lookup"), (.get, "/users/me"), (.delete, "/users/{id}/items/{item}"),
            (.get, "/users/me/things"), (.get, "/caf\u{e9}"), (.get, "/files/{name}.json"), (.get, "/files/{name}"),
        ].map { Route($0, $1, .buffered { _, _ in }) })

    enum Outcome: Equatable {
        case route(String, [String])
        case notAllowed(Set<String>)
        case notFound
    }

    @Test(arguments: [
        (Method.get, "/", Outcome.route("/", [])),
        (.get, "", .route("/", [])),
        (.get, "/users", .route("/users", [])),
        (.get, "/users/7", .route("/users/{id}", ["7"])),
        (.put, "/users/7", .route("/users/{id}", ["7"])),
        (.delete, "/users/7/items/a%20b", .route("/users/{id}/items/{item}", ["7", "a b"])),
        // A literal takes precedence over a parameter if it serves the method.
        (.get, "/users/me", .route("/users/me", [])),
        (.post, "/users/lookup", .route("/users/lookup", [])),
        (.get, "/users/lookup", .route("/users/{id}", ["lookup"])),
        (.put, "/users/me", .route("/users/{id}", ["me"])),
        (.delete, "/users/me/items/1", .route("/users/{id}/items/{item}", ["me", "1"])),
        // What follows a parameter in its part
        (.get, "/files/a.json", .route("/files/{name}.json", ["a"])),
        (.get, "/files/a.json.json", .route("/files/{name}.json", ["a.json"])),
        (.get, "/files/a%2Fb.json", .route("/files/{name}.json", ["a/b"])),
        (.get, "/files/.json", .route("/files/{name}", [".json"])),
        (.get, "/files/a.JSON", .route("/files/{name}", ["a.JSON"])),
        // Percent-encoding
        (.get, "/users/a%2Fb", .route("/users/{id}", ["a/b"])),
        (.get, "/%75sers", .route("/users", [])),
        (.get, "/caf%C3%A9", .route("/caf\u{e9}", [])),
        (.get, "/users%2F7", .notFound),
        // HEAD is GET without the body.
        (.head, "/users/7", .route("/users/{id}", ["7"])),
        (.head, "/users/lookup", .route("/users/{id}", ["lookup"])),
        // Refusals
        (.delete, "/users", .notAllowed(["GET", "HEAD", "POST", "OPTIONS"])),
        (.patch, "/users/lookup", .notAllowed(["GET", "HEAD", "PUT", "POST", "OPTIONS"])),
        (.get, "/users/7/items/8", .notAllowed(["DELETE", "OPTIONS"])),
        (.options, "/", .notAllowed(["GET", "HEAD", "OPTIONS"])),
        (.get, "/users/", .notFound),
        (.get, "//users", .notFound),
        (.get, "/Users", .notFound),
        (.get, "/users/7/items", .notFound),
        (.options, "*", .notFound),
    ])
    func `A path finds its route`(_ method: Method, path: String, expected: Outcome) {
        #expect(match(method, path) == expected)
    }

    private func match(_ method: Method, _ path: String) -> Outcome {
        let bytes = Array("?? \(path)".utf8)
        return bytes.withUnsafeBytes { bytes in
            switch router.match(method, path: 3..<bytes.count, in: bytes) {
            case .route(let route, let parameters):
                let values = (0..<parameters.count).map {
                    PercentDecoding.decode(bytes[slice: parameters[$0]]) ?? "not UTF-8"
                }
                return .route(router.routes[route].pattern, values)
            case .methodNotAllowed(let allowed, _, _):
                #expect(Set(allowed).count == allowed.count)
                return .notAllowed(Set(allowed.map(\.name.description)))
            case .notFound:
                return .notFound
            }
        }
    }
}

import CEmbedded
import Definitions
import HTTPServer
import HoldfastCore
import Synchronization

/// The manual as web pages. They have no data of this server, so they need no token.
struct ManualProtocol: WireProtocol {
    let routes: [APIRoute]

    init(_ services: Services) {
        let endpoints = ManualEndpoints(services: services)
        routes = [
            APIRoute(.get, "/manual", scope: .none, endpoints.redirect),
            APIRoute(.get, "/manual/", scope: .none, respondsLater: true, endpoints.landingPage),
            APIRoute(.get, "/manual/{topic}", scope: .none, respondsLater: true, endpoints.article),
            APIRoute(.get, "/manual/Client/{topic}", scope: .none, respondsLater: true, endpoints.clientArticle),
        ]
    }
}

/// The handlers of the manual's routes. They create pages and run searches off the event loop, because both take time.
private struct ManualEndpoints {
    let services: Services

    /// The content security policy: only this server's style sheet and pictures are loaded, and there are no scripts.
    private static let policy = """
        default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'
        """

    func redirect(_ request: borrowing Request, _ call: Call) -> Response {
        // Relative, so that a proxy may serve Holdfast below a path.
        var response = Response(Status(code: 302, reason: "Found"))
        response.fields = [("Location", "manual/"), ("Cache-Control", "no-cache")]
        return response
    }

    /// Responds with the landing page, or with the results of the search `?q=`.
    func landingPage(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let accepted = request.field("accept-encoding")
        guard let query = try request.query(knowing: ["q"])["q"], !query.isEmpty else {
            return try await page(of: "Holdfast", accepted)
        }
        let file = try await services.compute {
            StaticFile("text/html; charset=utf-8", Array(ManualPage.search(query).utf8))
        }
        return file.response(accepting: accepted, policy: Self.policy)
    }

    func article(_ request: borrowing Request, _ call: Call) async throws -> Response {
        try await page(of: request.parameter(0) ?? "", request.field("accept-encoding"))
    }

    func clientArticle(_ request: borrowing Request, _ call: Call) async throws -> Response {
        try await page(of: "Client/" + (request.parameter(0) ?? ""), request.field("accept-encoding"))
    }

    /// Returns the page of an article; or the style sheet or the picture that has the name.
    ///
    /// - Parameter accepted: the `Accept-Encoding` of the request.
    private func page(of topic: String, _ accepted: String?) async throws -> Response {
        if let file = Self.files[topic] { return file.response(accepting: accepted, policy: Self.policy) }
        guard let article = Manual.article(topic) else {
            let hint = Spelling.hint(for: topic, among: Manual.all.lazy.map(\.topic))
            throw Problem(.notFound, "the manual has no article '\(topic)'\(hint)")
        }
        if let page = Self.pages.withLock({ $0[topic] }) {
            return page.response(accepting: accepted, policy: Self.policy)
        }
        let page = try await services.compute {
            StaticFile("text/html; charset=utf-8", Array(try ManualPage.article(article).utf8))
        }
        Self.pages.withLock { $0[topic] = page }
        return page.response(accepting: accepted, policy: Self.policy)
    }

    /// The pages of articles that were requested, by topic. They never change while the program runs.
    private static let pages = Mutex<[String: StaticFile]>([:])

    /// The style sheet and the pictures.
    private static let files: [String: StaticFile] = {
        var files: [String: StaticFile] = [:]
        var file = embedded_manual_files()
        // The array of C ends with an element without a name.
        while let next = file, let name = next.pointee.name.map({ String(cString: $0) }), let bytes = next.pointee.text
        {
            let contentType: StaticString = name.hasSuffix(".css") ? "text/css; charset=utf-8" : "image/png"
            files[name] = StaticFile(contentType, Array(UnsafeBufferPointer(start: bytes, count: next.pointee.size)))
            file = next + 1
        }
        return files
    }()
}

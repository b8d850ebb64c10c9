import CEmbedded
import HTTPServer

/// The console: a page for people, served as static files. It calls the public API with the token that its user enters,
/// so it needs no token itself and has no route of its own to data.
struct ConsoleProtocol: WireProtocol {
    let routes: [APIRoute] = [
        APIRoute(.get, "/", scope: .none, Self.redirectBrowser),
        APIRoute(.get, "/console", scope: .none, Self.redirect),
        APIRoute(.get, "/console/", scope: .none) { try Self.respond(with: "index.html", $1) },
        APIRoute(.get, "/console/{file}", scope: .none) { try Self.respond(with: $0.parameter(0) ?? "", $1) },
    ]

    /// `GET /`: a browser is shown the console. For other clients there is nothing here.
    private static func redirectBrowser(_ request: borrowing Request, _ call: Call) throws {
        guard request.field("accept")?.lowercased().contains("text/html") == true else {
            throw Problem(.notFound, "no resource has this path")
        }
        try redirect(request, call)
    }

    /// The location is relative, so that a proxy may serve Holdfast below a path.
    private static func redirect(_ request: borrowing Request, _ call: Call) throws {
        var response = Response(Status(code: 302, reason: "Found"))
        response.fields = [("Location", "console/"), ("Vary", "Accept"), ("Cache-Control", "no-cache")]
        call.respond(response)
    }

    private static func respond(with name: String, _ call: Call) throws {
        guard let response = ConsoleFile.responses[name] else {
            throw Problem(.notFound, "the console has no file '\(name)'")
        }
        call.respond(response.response)
    }
}

/// A file of `Console/Page`, embedded in the program.
private struct ConsoleFile: Sendable {
    let contentType: StaticString
    let entityTag: EntityTag
    let bytes: [UInt8]

    /// Nothing but the files themselves and the API of this server may be loaded, no text becomes HTML or a script, and
    /// no other site may show the page in a frame.
    private static let policy = """
        default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; \
        form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'
        """

    var response: Response {
        var response = Response(.ok, contentType: contentType, entityTag: entityTag, body: .bytes(bytes))
        response.fields = [
            // A browser asks each time, and is told 304 until the program changes.
            ("Cache-Control", "no-cache"), ("Content-Security-Policy", Self.policy),
            ("X-Content-Type-Options", "nosniff"), ("Referrer-Policy", "no-referrer"),
            ("Cross-Origin-Opener-Policy", "same-origin"), ("Cross-Origin-Resource-Policy", "same-origin"),
        ]
        return response
    }

    /// All files by name.
    static let responses: [String: ConsoleFile] = {
        var files: [String: ConsoleFile] = [:]
        var file = embedded_console()
        while let next = file, let name = next.pointee.name.map({ String(cString: $0) }), let text = next.pointee.text {
            let bytes = Array(String(cString: text).utf8)
            files[name] = ConsoleFile(
                contentType: contentType(of: name), entityTag: bytes.withUnsafeBytes { EntityTag(hashing: $0) },
                bytes: bytes)
            file = next + 1
        }
        return files
    }()

    private static func contentType(of name: String) -> StaticString {
        switch name.split(separator: ".").last {
        case "html": "text/html; charset=utf-8"
        case "css": "text/css; charset=utf-8"
        case "svg": "image/svg+xml"
        default: "text/javascript; charset=utf-8"
        }
    }
}

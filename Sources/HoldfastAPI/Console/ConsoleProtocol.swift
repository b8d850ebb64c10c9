import CEmbedded
import HTTPServer
import JSON

/// The console: a web page, served as static files. It calls the public API with the token that its user enters or that
/// an identity provider issues. The files therefore need no token, and there are no other routes to data.
struct ConsoleProtocol: WireProtocol {
    let routes: [APIRoute]

    init(_ access: AccessControl) {
        routes = [
            APIRoute(.get, "/", scope: .none, Self.redirectBrowser),
            APIRoute(.get, "/console", scope: .none, Self.redirect),
            APIRoute(.get, "/console/", scope: .none) { request, _ throws in
                try Self.file("index.html", request, access.signIn)
            },
            APIRoute(.get, "/console/sign-in.json", scope: .none) { _, _ in Self.signIn(access.signIn) },
            APIRoute(.get, "/console/{file}", scope: .none) { request, _ throws in
                try Self.file(request.parameter(0) ?? "", request, access.signIn)
            },
        ]
        // Compresses the files now, so that no request waits for the compression on an event loop.
        _ = ConsoleFiles.all
    }

    /// `GET /`: redirects browsers to the console; 404 for other clients.
    private static func redirectBrowser(_ request: borrowing Request, _ call: Call) throws -> Response {
        guard request.field("accept")?.lowercased().contains("text/html") == true else {
            var problem = Problem(.notFound, "no resource has this path; /openapi.json lists all")
            problem.fields = [("Vary", "Accept")]
            throw problem
        }
        return redirect(request, call)
    }

    /// Redirects to the console. The location is relative, so that a proxy may serve Holdfast below a path.
    private static func redirect(_ request: borrowing Request, _ call: Call) -> Response {
        var response = Response(Status(code: 302, reason: "Found"))
        response.fields = [("Location", "console/"), ("Vary", "Accept"), ("Cache-Control", "no-cache")]
        return response
    }

    /// Responds with the settings for signing in at an identity provider; 204 if there is none.
    private static func signIn(_ signIn: SignIn?) -> Response {
        guard let signIn else { return Response(.noContent) }
        return .json([
            "issuer": .string(signIn.issuer), "authorization_endpoint": .string(signIn.authorizationEndpoint),
            "token_endpoint": .string(signIn.tokenEndpoint), "client_id": .string(signIn.clientID),
            "scope": .string(signIn.scopes), "audience": .string(signIn.audience),
        ])
    }

    /// Responds with a file of the page.
    private static func file(_ name: String, _ request: borrowing Request, _ signIn: SignIn?) throws -> Response {
        guard let file = ConsoleFiles.all[name] else {
            throw Problem(.notFound, "the console has no file '\(name)'")
        }
        return file.response(
            accepting: request.field("accept-encoding"), policy: ConsoleFiles.policy(allowing: signIn?.origins ?? []))
    }
}

/// The files of `Console/Page`, embedded in the program.
private enum ConsoleFiles {
    /// All files by name.
    static let all: [String: StaticFile] = {
        var files: [String: StaticFile] = [:]
        var file = embedded_console()
        // The array of C ends with an element without a name.
        while let next = file, let name = next.pointee.name.map({ String(cString: $0) }), let text = next.pointee.text {
            files[name] = StaticFile(contentType(of: name), Array(String(cString: text).utf8))
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

    /// Returns the content security policy: only the files and the API of this server may be loaded, text cannot become
    /// HTML or a script, and no other site may show the page in a frame.
    ///
    /// - Parameter origins: the origins of the identity provider, to which the page may also send requests.
    static func policy(allowing origins: [String]) -> String {
        let sources = (["'self'"] + origins).joined(separator: " ")
        return """
            default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src \(sources); \
            base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
            trusted-types 'none'
            """
    }
}

import HTTPServer

/// The origins whose pages may call client routes (`--cors-origins`), by the CORS protocol of the Fetch standard. Pages
/// send the token in a header field, never as a cookie, so no response allows credentials.
public struct AllowedOrigins: Sendable {
    typealias Field = (name: StaticString, value: String)

    /// The origins in lower case, as browsers send them; `nil` allows every origin.
    private let origins: Set<String>?

    /// The response fields that the scripts of a page may read.
    private static let exposed: Field = (
        "Access-Control-Expose-Headers",
        "Allow, ETag, Retry-After, Traceparent, X-Ignored-Amounts, X-Refused-Events, X-Request-Id, X-SSE-Support"
    )
    private static let fieldsForEveryOrigin: [Field] = [("Access-Control-Allow-Origin", "*"), exposed]
    private static let fieldsForOriginNotAllowed: [Field] = [("Vary", "Origin")]

    /// Parses a list such as `https://shop.example,http://localhost:3000`, or `*` for every origin.
    ///
    /// - Returns: `nil` if an element is not an origin: a scheme, a host and an optional port, without a path.
    public init?(_ list: String) {
        guard list != "*" else {
            origins = nil
            return
        }
        var origins: Set<String> = []
        for part in list.split(separator: ",", omittingEmptySubsequences: false) {
            let origin = part.filter { $0 != " " }.lowercased()
            guard Self.isOrigin(origin) else { return nil }
            origins.insert(origin)
        }
        self.origins = origins
    }

    /// Whether the list names an origin. `*` allows every origin for client routes, but names none.
    ///
    /// - Parameter origin: in lower case.
    func lists(_ origin: String) -> Bool { origins?.contains(origin) ?? false }

    /// Whether the pages of an origin may call client routes.
    func allows(_ origin: String) -> Bool { origins?.contains(origin) ?? true }

    /// Returns the header fields by which a page of an origin may read a response. For an origin that is not allowed
    /// there is only `Vary`: caches must keep the responses for different origins apart.
    ///
    /// - Parameter origin: the field `Origin` of the request; `nil` if it has none.
    func fields(for origin: String?) -> [Field] {
        guard let origins else { return Self.fieldsForEveryOrigin }
        guard let origin, origins.contains(origin) else { return Self.fieldsForOriginNotAllowed }
        return [("Access-Control-Allow-Origin", origin), ("Vary", "Origin"), Self.exposed]
    }

    // MARK: Parsing

    /// Whether a text in lower case has the form `scheme://host` or `scheme://host:port`. The host may be an IPv6
    /// address in brackets.
    private static func isOrigin(_ text: String) -> Bool {
        guard let separator = text.firstRange(of: "://") else { return false }
        let scheme = text[..<separator.lowerBound].utf8
        let host = text[separator.upperBound...].utf8
        return !scheme.isEmpty && !host.isEmpty
            && scheme.allSatisfy { isLetterOrDigit($0) || "+-.".utf8.contains($0) }
            && host.allSatisfy { isLetterOrDigit($0) || "-._:[]".utf8.contains($0) }
    }

    private static func isLetterOrDigit(_ byte: UInt8) -> Bool {
        (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte) || (UInt8(ascii: "a")...UInt8(ascii: "z")).contains(byte)
    }
}

/// Responds to preflight requests (`OPTIONS`), by which browsers ask whether a page may call a route. Preflight
/// requests need no token. The application adds the fields of ``AllowedOrigins``, as to all responses for pages.
enum CrossOriginPreflight {
    /// The header fields that clients send.
    private static let requestFields =
        "authorization, content-type, if-match, if-modified-since, if-none-match, last-event-id, traceparent, tracestate, x-api-key, x-optimizely-sdk-key, x-optimizely-strict, x-record-exposures, x-request-id"
    /// How long a browser may keep the response, in seconds: two hours, the maximum of Chromium.
    private static let maximumAge = "7200"

    /// Returns an `OPTIONS` route for each path that pages may call.
    static func routes(for routes: [APIRoute]) -> [Route] {
        var patterns: [String] = []
        for route in routes where route.scope.isForPages && !patterns.contains(route.pattern) {
            patterns.append(route.pattern)
        }
        return patterns.map { pattern in
            let routesOfPath = routes.filter { $0.pattern == pattern }
            let allowed = list(routesOfPath.map(\.method))
            let allowedToPages = list(routesOfPath.filter(\.scope.isForPages).map(\.method))
            return Route(
                .options, pattern,
                .buffered { request, responder in
                    var response = Response(.noContent)
                    response.fields = [("Allow", allowed)]
                    if request.field("access-control-request-method") != nil {
                        response.fields += [
                            ("Access-Control-Allow-Methods", allowedToPages),
                            ("Access-Control-Allow-Headers", requestFields),
                            ("Access-Control-Max-Age", maximumAge),
                        ]
                    }
                    responder.send(response)
                })
        }
    }

    /// Lists methods for a header field. The server also responds to `OPTIONS`, and to `HEAD` where there is a `GET`.
    private static func list(_ methods: [Method]) -> String {
        let served = Method.allCases.filter {
            methods.contains($0) || $0 == .options || ($0 == .head && methods.contains(.get))
        }
        return served.map(\.name.description).joined(separator: ", ")
    }
}

import HTTPServer

/// The origins whose pages may call client routes (`--cors-origins`; Fetch standard, CORS protocol). Pages send the
/// token in a header field, never as a cookie, so no response allows credentials.
public struct AllowedOrigins: Sendable {
    typealias Field = (name: StaticString, value: String)

    /// In lower case, as browsers send them; `nil` allows every origin.
    private let origins: Set<String>?

    private static let exposed: Field = (
        "Access-Control-Expose-Headers",
        "Allow, ETag, Retry-After, Traceparent, X-Ignored-Amounts, X-Refused-Events, X-Request-Id, X-SSE-Support"
    )
    private static let fieldsForAll: [Field] = [("Access-Control-Allow-Origin", "*"), exposed]
    private static let fieldsForOthers: [Field] = [("Vary", "Origin")]

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

    private static func isOrigin(_ text: String) -> Bool {
        guard let end = text.firstRange(of: "://") else { return false }
        let (scheme, host) = (text[..<end.lowerBound].utf8, text[end.upperBound...].utf8)
        return !scheme.isEmpty && !host.isEmpty
            && scheme.allSatisfy { isLetterOrDigit($0) || "+-.".utf8.contains($0) }
            && host.allSatisfy { isLetterOrDigit($0) || "-._:[]".utf8.contains($0) }
    }

    private static func isLetterOrDigit(_ byte: UInt8) -> Bool {
        byte &- UInt8(ascii: "0") < 10 || byte &- UInt8(ascii: "a") < 26
    }

    /// Returns the header fields by which a page of an origin may read a response. For an origin that is not allowed
    /// there is only `Vary`: caches must keep the responses for different origins apart.
    ///
    /// - Parameter origin: the field `Origin` of the request; `nil` if it has none.
    func fields(for origin: String?) -> [Field] {
        guard let origins else { return Self.fieldsForAll }
        guard let origin, origins.contains(origin) else { return Self.fieldsForOthers }
        return [("Access-Control-Allow-Origin", origin), ("Vary", "Origin"), Self.exposed]
    }
}

/// Responds to preflight requests (`OPTIONS`), with which browsers ask whether a page may call a route. Preflight
/// requests need no token. The application adds the fields of ``AllowedOrigins``, as to all responses for pages.
enum CrossOriginPreflight {
    /// Header fields that clients send.
    private static let requestFields =
        "authorization, content-type, if-match, if-modified-since, if-none-match, last-event-id, traceparent, tracestate, x-api-key, x-optimizely-sdk-key, x-optimizely-strict, x-record-exposures, x-request-id"

    /// Returns a route for each path that pages may call.
    static func routes(for routes: [APIRoute]) -> [Route] {
        var patterns: [String] = []
        for route in routes where route.scope.isForPages && !patterns.contains(route.pattern) {
            patterns.append(route.pattern)
        }
        return patterns.map { pattern in
            let ofPath = routes.filter { $0.pattern == pattern }
            let allowed = list(ofPath.map(\.method))
            let forPages = list(ofPath.filter(\.scope.isForPages).map(\.method))
            return Route(
                .options, pattern,
                .buffered { request, responder in
                    var response = Response(.noContent)
                    response.fields = [("Allow", allowed)]
                    if request.field("access-control-request-method") != nil {
                        response.fields += [
                            ("Access-Control-Allow-Methods", forPages), ("Access-Control-Allow-Headers", requestFields),
                            ("Access-Control-Max-Age", "7200"),
                        ]
                    }
                    responder.send(response)
                })
        }
    }

    private static func list(_ methods: [Method]) -> String {
        let served = Method.allCases.filter {
            methods.contains($0) || $0 == .options || $0 == .head && methods.contains(.get)
        }
        return served.map(\.name.description).joined(separator: ", ")
    }
}

// What is inside the modules can be measured only when they are built for testing, as `Tests/Benchmarks/parts` does. A debug
// build is, too, and so finds out what no longer compiles.
#if TESTABLE_MODULES || DEBUG
    import Bucketing
    import Storage

    @testable import HTTPServer
    @testable import HoldfastAPI
    @testable import HoldfastCore

    func serverParts() throws -> [Part] {
        let record = Samples.record
        let json = ProfileJSON.encode(Samples.userID, record)
        return httpParts(json) + [
            Part("profile-to-json") { ProfileJSON.encode(Samples.userID, record) },
            Part("profile-body") { Samples.profileBody.withUnsafeBytes { try? ProfileInput($0) } },
            // What PlainProfileScanner saves.
            Part("profile-body-by-parser") {
                Samples.profileBody.withUnsafeBytes { try? ProfileInput(JSONInput.parse($0)) }
            },
            Part("entity-tag") { json.withUnsafeBytes { EntityTag(hashing: $0) } },
        ]
    }

    private func httpParts(_ json: [UInt8]) -> [Part] {
        var parser = RequestHeadParser(maximumLength: 16_384, maximumFields: 100)
        let router = Router(patterns.map { Route($0, $1, .buffered { _, _ in }) })
        let path = 4..<28
        var output = OutputQueue()
        let response = Response(
            .ok, contentType: "application/json", entityTag: EntityTag(0x1234_5678_9ABC_DEF0), body: .bytes(json))
        let request = PendingRequest(
            id: .generated(loop: 1, count: 1_000_000), method: .get, isVersion11: true, keepsAlive: true,
            ifNoneMatch: nil, route: 0, startedAt: 0, target: nil, response: nil)
        let date = Array("Date: Sat, 21 Nov 2026 05:30:28 GMT\r\n".utf8)
        return [
            Part("request-head") {
                parser.reset()
                return Samples.head.withUnsafeBytes { (try? parser.parse($0))??.length }
            },
            Part("router") { Samples.head.withUnsafeBytes { router.match(.get, path: path, in: $0) } },
            Part("response") {
                let status = ResponseEncoder.encode(response, to: request, date: date, into: &output).status
                output.consume(output.count)
                return status
            },
        ]
    }

    /// As many as the server has, and alike.
    private let patterns: [(Method, String)] =
        ["livez", "readyz", "health", "metrics", "info", "openapi.json"].map { (.get, "/" + $0) }
        + ["decide", "activate", "track", "override", "lookup", "save", "batch", "bucket", "assign"]
        .map { (.post, "/v1/" + $0) } + [
            (.get, "/v1/profiles"), (.post, "/v1/profiles"), (.post, "/v1/profiles/lookup"),
            (.get, "/v1/profiles/{user_id}"), (.put, "/v1/profiles/{user_id}"), (.patch, "/v1/profiles/{user_id}"),
            (.get, "/v1/profiles/{user_id}/experiments/{experiment}"), (.post, "/ups/lookup"), (.post, "/ups/save"),
        ]
#endif

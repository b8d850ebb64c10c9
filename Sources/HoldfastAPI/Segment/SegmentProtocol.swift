import CCrypto
import Definitions
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// The batch protocol of Segment's and RudderStack's libraries, for teams that bucket users elsewhere and want results
/// from this server.
///
/// The write key of a library is the secret of a token. Both libraries send it as the user name of Basic authentication
/// (RFC 7617) to `HOST/v1/batch`, where `HOST` is `https://…/segment` here.
///
/// - SeeAlso: "HTTP API" of Segment's documentation, and its specification of A/B tests.
struct SegmentProtocol: WireProtocol {
    let routes: [APIRoute]
    let pathPrefixes = ["/segment"]

    init(_ loop: LoopServices) {
        let batch = SegmentBatchEndpoint(services: loop.services, projects: loop.projects)
        routes = [
            APIRoute(
                .post, "/segment/v1/batch", scope: .token(.client), readsQuery: true, acceptsGzip: true, batch.post)
        ].map(\.atEdge)
    }

    func credential(of request: borrowing Request) -> Substring? {
        let authorization = request.field("authorization")
        return authorization.flatMap(Self.userName)
            ?? tokenSecret(authorization: authorization, apiKey: request.field("x-api-key"))
    }

    /// The maximum length of an `Authorization` field in bytes.
    private static let longestAuthorization = 8_192

    /// Returns the user name of an `Authorization` field with the scheme Basic; `nil` for another field.
    private static func userName(_ value: String) -> Substring? {
        let scheme = "basic "
        let length = scheme.utf8.count
        guard value.utf8.count > length, value.utf8.count <= longestAuthorization,
            value.prefix(length).lowercased() == scheme
        else { return nil }
        let encoded = Array(value.utf8.dropFirst(length).drop { $0 == UInt8(ascii: " ") })
        // Without the library there are no tokens, because a server with tokens does not start without it.
        guard crypto_is_available() == 1 else { return nil }
        // The output has three bytes for each group of four characters that has begun, so it fits.
        var decoded = [UInt8](repeating: 0, count: encoded.count + 3)
        let decodedLength = EVP_DecodeBlock(&decoded, encoded, Int32(encoded.count))
        guard decodedLength > 0 else { return nil }
        // The padding is decoded as NUL.
        let name = decoded.prefix(Int(decodedLength)).prefix { $0 != UInt8(ascii: ":") && $0 != 0 }
        return String(decoding: name, as: UTF8.self)[...]
    }

    /// Renders `{"success","code","message"}`. Segment's libraries read only the status. RudderStack's also read `code`
    /// and `message`.
    func response(to error: any Error, on _: String?) -> Response {
        let problem = Problem(error)
        var writer = JSONWriter()
        writer.beginObject()
        writer.member("success", false)
        writer.member("code", problem.status.code)
        writer.member("message", problem.sentence)
        writer.endObject()
        var response = Response.json(writer.finish(), problem.status)
        response.fields = problem.fields
        return response
    }
}

/// `POST /segment/v1/batch`: `track` messages become goal events, `Experiment Viewed` exposures; other messages are
/// accepted and not stored. 200 when the events are durable.
///
/// Invalid messages are dropped silently. With `X-Strict-Mode: 1` the batch is refused instead, and the response
/// describes the faults.
struct SegmentBatchEndpoint {
    let services: Services
    let projects: ProjectView

    /// The maximum size of a body in bytes. Segment's libraries send at most 500 KB.
    private static let longestBody = 4 << 20

    func post(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let sdkKey = try request.query(knowing: ["sdk_key"])["sdk_key"] ?? request.sdkKey
        let isStrict = request.field("x-strict-mode") == "1"
        let value = try request.withExpandedBody(limit: Self.longestBody) { bytes throws(CoreError) in
            try JSONInput.parse(bytes)
        }
        let now = services.store.clock.now()
        let batch = try SegmentBatch(
            value, sdkKey: sdkKey, projects, for: call.access, limit: services.options.elementLimit, now: now)
        var events = ReportedEvents()
        var slice = TimeSlice(call.responder)
        for index in batch.messages.indices {
            try await slice.step()
            let event: Result<UserEvent, CoreError>?
            do throws(CoreError) {
                event = try batch.event(at: index).map { .success($0) }
            } catch {
                event = .failure(error)
            }
            if let event { try events.add(event, call) }
        }
        if isStrict { try events.requireAll() }
        let fields = try await events.record(services)
        var response = Response.json(["success": true])
        response.fields = fields
        return response
    }
}

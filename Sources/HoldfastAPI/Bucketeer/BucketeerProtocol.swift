import Chronology
import Definitions
import HTTPServer
import HoldfastCore
import JSON
import Storage
import Synchronization

/// The API that Bucketeer's SDKs call: the JSON form of its gRPC gateway. The API key of an SDK is the secret of a
/// token, sent without an authentication scheme. A tag of the SDK selects the flags that it evaluates.
///
/// - SeeAlso: `proto/gateway/service.proto` and `proto/event/client/event.proto` of bucketeer-io/bucketeer.
struct BucketeerProtocol: WireProtocol {
    let routes: [APIRoute]
    /// Includes the methods of the gateway that this server does not implement.
    let pathPrefixes = [
        "/get_evaluations", "/get_evaluation", "/get_feature_flags", "/get_segment_users", "/register_events", "/ping",
    ]

    init(_ loop: LoopServices) {
        let services = loop.services
        let evaluation = BucketeerEvaluationEndpoints(decisions: loop.decisions, projects: loop.projects)
        let event = BucketeerEventEndpoint(services: services, store: loop.session, projects: loop.projects)
        routes = [
            APIRoute(.post, "/get_evaluations", scope: .token(.client), evaluation.postAll),
            APIRoute(.post, "/get_evaluation", scope: .token(.client), evaluation.postOne),
            APIRoute(.post, "/register_events", scope: .token(.client), event.post),
            APIRoute(.get, "/ping", scope: .none, Self.ping),
        ].map(\.atEdge)
    }

    func credential(of request: borrowing Request) -> Substring? {
        guard let value = request.field("authorization"), !value.isEmpty else {
            return tokenSecret(authorization: nil, apiKey: request.field("x-api-key"))
        }
        return bearerSecret(value) ?? value[...]
    }

    func response(to error: any Error, on _: String?) -> Response {
        BucketeerError(error).response
    }

    /// `GET /ping`: the time of the server.
    private static func ping(_ request: borrowing Request, _ call: Call) -> Response {
        var writer = JSONWriter()
        writer.beginObject()
        writer.member(seconds: "time", systemWallClock())
        writer.endObject()
        return .json(writer.finish())
    }
}

/// An error as grpc-gateway renders it: `{"code","message","details"}`.
struct BucketeerError: DefinitionError {
    let status: Status
    let message: String
    /// Further header fields of the response.
    var fields: [(name: StaticString, value: String)] = []
    var mayBeStale = false

    init(_ status: Status, _ message: String) {
        self.status = status
        self.message = message.shortened(to: Problem.longestDetail)
    }

    /// Renders any other error.
    init(_ error: any Error) {
        if let error = error as? BucketeerError {
            self = error
            return
        }
        let problem = Problem(error)
        // The SDKs expect 401 for a missing key and 403 for an unknown one. `AccessGate` responds with 401 to both, and
        // adds the code `invalid_token` (RFC 6750 §3.1) for an unknown one.
        let isUnknownKey = problem.fields.contains { $0.value.contains("invalid_token") }
        self.init(isUnknownKey ? .forbidden : Self.status(problem.status), problem.sentence)
        fields = isUnknownKey ? [] : problem.fields
    }

    /// Maps 409, 412, 415 and 422, which the SDKs do not know, to 400.
    private static func status(_ status: Status) -> Status {
        switch status {
        case .conflict, .preconditionFailed, .unsupportedMediaType, .unprocessableContent: .badRequest
        default: status
        }
    }

    /// The code of gRPC that corresponds to the status (google/rpc/code.proto).
    private var code: Int {
        switch status {
        case .badRequest: 3
        case .requestTimeout: 4
        case .notFound: 5
        case .forbidden: 7
        case .contentTooLarge: 8
        case .methodNotAllowed, .notImplemented: 12
        case .serviceUnavailable: 14
        case .unauthorized: 16
        // INVALID_ARGUMENT for other faults of the request, and INTERNAL for faults of the server.
        default: status.code < 500 ? 3 : 13
        }
    }

    var response: Response {
        var writer = JSONWriter()
        writer.beginObject()
        writer.member("code", code)
        writer.member("message", message)
        writer.key("details")
        writer.beginArray()
        writer.endArray()
        writer.endObject()
        writer.endLine()
        var response = Response(status, contentType: MediaType.json, body: .bytes(writer.finish()))
        response.fields = fields
        return response
    }
}

/// Counts the metrics events that SDKs send. Thread-safe.
final class BucketeerMetrics: Sendable {
    private let events = Atomic<UInt64>(0)

    /// The number of events about latency, sizes and errors.
    var reported: UInt64 { events.load(ordering: .relaxed) }

    func countReport() {
        events.add(1, ordering: .relaxed)
    }
}

// MARK: - The JSON mapping of Protocol Buffers

// A member that is absent or null has the default of its type. 64-bit integers are strings; numbers are accepted, too.
extension JSONObject {
    /// Returns a string; empty if it is absent.
    func protobufText(_ name: String, in place: JSONPointer = []) throws(CoreError) -> String {
        try optionalText(name, in: place) ?? ""
    }

    /// Returns a message; `nil` if it is absent.
    func protobufMessage(_ name: String, in place: JSONPointer = []) throws(CoreError) -> JSONObject? {
        guard let value = self[name], !value.isNull else { return nil }
        guard let object = value.object else {
            throw CoreError(.invalid, "`\(name)` must be an object; got \(value.kind)", at: place.appending(name))
        }
        return object
    }

    /// Returns a 64-bit integer; 0 if it is absent.
    func protobufInteger(_ name: String, in place: JSONPointer = []) throws(CoreError) -> Int64 {
        guard let value = self[name], !value.isNull else { return 0 }
        guard
            let number = value.integer ?? value.string.flatMap({ Int64($0) })
                ?? value.double.flatMap({ Int64(exactly: $0) })
        else {
            throw CoreError(.invalid, "`\(name)` must be a whole number; got \(value.kind)", at: place.appending(name))
        }
        return number
    }
}

extension JSONWriter {
    /// Writes a time as whole seconds since 1970.
    mutating func member(seconds name: StaticString, _ time: Instant) {
        member(name, String(time.secondsSince1970))
    }
}

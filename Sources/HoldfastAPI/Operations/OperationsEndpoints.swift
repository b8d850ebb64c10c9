import Bucketing
import HTTPServer
import HoldfastCore
import JSON

/// What an orchestrator and a curious person ask: does it run, is it ready, what is it.
struct OperationsEndpoints {
    let services: Services

    /// The process runs.
    func live(_ request: borrowing Request, _ call: Call) {
        call.respond(json: Array(#"{"status":"ok"}"#.utf8))
    }

    /// The store answers and can be written, and the server is not shutting down; else 503 with the reason.
    func ready(_ request: borrowing Request, _ call: Call) {
        services.readiness.check { reason in
            guard let reason else { return call.respond(json: Array(#"{"status":"ready"}"#.utf8)) }
            call.fail(Self.notReady(reason))
        }
    }

    /// As `ready`, with the body that health checks commonly look for.
    func health(_ request: borrowing Request, _ call: Call) {
        services.readiness.check { reason in
            guard let reason else { return call.respond(json: Array(#"{"status":"ok"}"#.utf8)) }
            call.fail(Self.notReady(reason))
        }
    }

    private static func notReady(_ reason: String) -> HoldfastError {
        HoldfastError(.unavailable, "not ready: \(reason)")
    }

    func info(_ request: borrowing Request, _ call: Call) {
        var writer = JSONWriter()
        writer.beginObject()
        writer.member("name", services.build.name)
        writer.member("version", services.build.version)
        writer.endObject()
        call.respond(json: writer.finish())
    }

    func openAPI(_ request: borrowing Request, _ call: Call) {
        call.respond(
            Response(.ok, contentType: MediaType.json, entityTag: Self.openAPITag, body: .bytes(Self.openAPIText)))
    }

    /// One array for all responses.
    private static let openAPIText = PackageResources.openapi_json + [UInt8(ascii: "\n")]

    private static let openAPITag = PackageResources.openapi_json.withUnsafeBytes { EntityTag(hashing: $0) }
}

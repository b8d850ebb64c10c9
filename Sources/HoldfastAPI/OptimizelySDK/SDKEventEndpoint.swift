import Definitions
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// `POST /sdk/v1/events`: records the events of an SDK's event dispatcher. 204 when they are durable.
///
/// Invalid events are dropped silently. With `X-Optimizely-Strict: true` the batch is refused instead, and the response
/// describes the faults.
struct SDKEventEndpoint {
    let services: Services
    let projects: ProjectView

    private static let parser = JSONParser()
    /// The maximum size of a body in bytes, as in the published contract. All events of a visitor are in one request.
    static let longestBody = 10 << 20

    func post(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let sdkKey = try request.query(knowing: ["sdk_key"])["sdk_key"] ?? request.sdkKey
        let isStrict = request.field("x-optimizely-strict")?.lowercased() == "true"
        let value = try request.withExpandedBody(limit: Self.longestBody) { bytes throws(CoreError) in
            do throws(JSONError) {
                return try Self.parser.parse(bytes)
            } catch {
                throw CoreError(error, in: "the body")
            }
        }
        var batch = try SDKEventBatch(
            value, sdkKey: sdkKey, projects, for: call.access, now: services.store.clock.now())
        var events = ReportedEvents()
        var slice = TimeSlice(call.responder)
        for visitor in batch.visitors.indices {
            try await slice.step()
            for event in batch.events(ofVisitor: visitor) { try events.add(event, call) }
            events.ignore(batch.takeIgnoredAmounts())
        }
        if isStrict { try events.requireAll() }
        var response = Response(.noContent)
        response.fields = try await events.record(services)
        return response
    }
}

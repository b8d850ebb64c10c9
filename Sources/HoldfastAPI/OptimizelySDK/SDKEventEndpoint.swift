import Definitions
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// `POST /sdk/v1/events`: what an SDK's event dispatcher sends. 204 when the events are durable.
///
/// An unusable event is left out silently. `X-Optimizely-Strict: true` refuses the batch instead, and says what is wrong.
struct SDKEventEndpoint {
    let services: Services
    let projects: ProjectView

    private static let parser = JSONParser()
    /// What SDKs were told a request may have; a visitor's events come in one.
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

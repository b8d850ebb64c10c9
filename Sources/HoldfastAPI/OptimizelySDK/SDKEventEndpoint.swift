import HTTPServer
import HoldfastCore
import JSON
import Storage
internal import Synchronization

/// `POST /sdk/v1/events`: what an SDK's event dispatcher sends. 204 when the events are durable.
///
/// As in the published contract, an unusable event is left out silently, and the others are stored: an SDK drops a
/// refused batch as a whole, or sends it again forever. `X-Optimizely-Strict: true` refuses the batch instead, and
/// says what is wrong.
struct SDKEventEndpoint {
    let services: Services
    let projects: ProjectView

    private static let parser = JSONParser()

    /// The number of refused events that a response lists.
    private static let refusalLimit = 100

    /// Events of one transaction. A request may bring thousands, and other writes must not wait for all of them.
    private static let transaction = 500

    func post(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let sdkKey = try request.query(knowing: ["sdk_key"])["sdk_key"] ?? request.sdkKey
        let isStrict = request.field("x-optimizely-strict")?.lowercased() == "true"
        let value = try request.withBody { bytes throws(CoreError) in
            do throws(JSONError) {
                return try Self.parser.parse(bytes)
            } catch {
                throw CoreError(error, in: "the body")
            }
        }
        var batch = try SDKEventBatch(value, sdkKey: sdkKey, projects, now: services.store.clock.now())
        var events: [UserEvent] = []
        var refusals: [CoreError] = []
        var refused = 0
        var slice = TimeSlice(call.responder)
        for visitor in batch.visitors.indices {
            try await slice.step()
            for result in batch.events(ofVisitor: visitor) {
                switch result {
                case .success(let event): events.append(event)
                case .failure(let error):
                    if error.mayBeStale { try call.requireUpToDate() }
                    refused += 1
                    if refusals.count < Self.refusalLimit { refusals.append(error) }
                }
            }
        }
        if isStrict, let first = refusals.first {
            var error = CoreError(.invalid, "\(first.detail); nothing was stored", at: first.pointer)
            error.faults = refusals.map { JSONFault(pointer: $0.pointer ?? [], reason: $0.detail) }
            throw error
        }
        services.refusedSDKEvents.add(UInt64(refused), ordering: .relaxed)
        // When the store fails, the events of earlier transactions stay: a repeat does not count them again.
        var rest = events[...]
        while !rest.isEmpty {
            _ = try await services.reporter.record(Array(rest.prefix(Self.transaction)))
            rest = rest.dropFirst(Self.transaction)
        }
        var response = Response(.noContent)
        if refused > 0 { response.fields = [("X-Refused-Events", "\(refused)")] }
        return response
    }
}

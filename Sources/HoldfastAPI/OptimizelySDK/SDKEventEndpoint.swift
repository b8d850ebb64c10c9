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

    func post(_ request: borrowing Request, _ call: Call) throws(CoreError) {
        let sdkKey = try request.query(knowing: ["sdk_key"])["sdk_key"] ?? request.sdkKey
        let isStrict = request.field("x-optimizely-strict")?.lowercased() == "true"
        let value = try request.withBody { bytes throws(CoreError) in
            do throws(JSONError) {
                return try Self.parser.parse(bytes)
            } catch {
                throw CoreError(error, in: "the body")
            }
        }
        try take(value, sdkKey, isStrict: isStrict, call)
    }

    private func take(_ value: JSONValue, _ sdkKey: String?, isStrict: Bool, _ call: Call) throws(CoreError) {
        var batch = try SDKEventBatch(value, sdkKey: sdkKey, projects, now: services.store.clock.now())
        let recording = SDKEventRecording(visitors: batch.visitors.count, isStrict: isStrict, services, call) {
            call.updating(projects) { result in
                call.attempt { try take(value, sdkKey, isStrict: isStrict, try result.get()) }
            }
        }
        call.forEach(batch.visitors.indices) { recording.add(batch.events(ofVisitor: $0)) }
    }
}

/// The events of one request as they are parsed, and then the response to it. On the event loop of the request.
private final class SDKEventRecording {
    private let services: Services
    private let call: Call
    private let isStrict: Bool
    private var missingVisitors: Int
    private var events: [UserEvent] = []
    private var refused = 0
    /// The first events that were refused.
    private var refusals: [CoreError] = []
    private var lacksDefinitions = false
    /// Takes the request again, with all definitions that are stored.
    private let retry: () -> Void

    /// The number of refused events that are kept: as many as a response lists.
    private static let refusalLimit = 100

    /// Events of one transaction. A request may bring thousands, and other writes must not wait for all of them.
    private static let transaction = 500

    init(visitors: Int, isStrict: Bool, _ services: Services, _ call: Call, retry: @escaping () -> Void) {
        self.retry = retry
        self.services = services
        self.call = call
        self.isStrict = isStrict
        missingVisitors = visitors
        if visitors == 0 { finish() }
    }

    func add(_ results: SDKEventBatch.Events) {
        for result in results {
            switch result {
            case .success(let event): events.append(event)
            case .failure(let error):
                refused += 1
                lacksDefinitions = lacksDefinitions || error.concernsDefinitions
                if refusals.count < Self.refusalLimit { refusals.append(error) }
            }
        }
        missingVisitors -= 1
        if missingVisitors == 0 { finish() }
    }

    private func finish() {
        if lacksDefinitions, !call.isUpToDate { return retry() }
        if isStrict, let first = refusals.first {
            var error = CoreError(.invalid, "\(first.detail); nothing was stored", at: first.pointer)
            error.faults = refusals.map { JSONFault(pointer: $0.pointer ?? [], reason: $0.detail) }
            return call.fail(error)
        }
        services.refusedSDKEvents.add(UInt64(refused), ordering: .relaxed)
        var response = Response(.noContent)
        if refused > 0 { response.fields = [("X-Refused-Events", "\(refused)")] }
        record(events[...], response)
    }

    /// Records the events, some in each transaction. When the store fails, those of earlier transactions stay: a repeat
    /// does not count them again.
    private func record(_ rest: ArraySlice<UserEvent>, _ response: Response) {
        // Safe: used on the loop's thread only.
        nonisolated(unsafe) let (recording, response) = (self, response)
        services.reporter.record(Array(rest.prefix(Self.transaction))) { [call] result in
            call.onEventLoop {
                let others = rest.dropFirst(Self.transaction)
                switch result {
                case .success where others.isEmpty: call.respond(response)
                case .success: recording.record(others, response)
                case .failure(let error): call.fail(error)
                }
            }
        }
    }
}

@available(*, unavailable) extension SDKEventRecording: Sendable {}

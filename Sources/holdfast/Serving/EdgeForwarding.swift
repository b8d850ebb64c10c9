import HoldfastAPI
import StorageEdge

/// Forwards requests of an edge's clients to its upstream, by the connections that the edge's store has to it.
final class EdgeForwarding: UpstreamRequests {
    private let store: EdgeStore
    /// The maximum size of a response, in bytes.
    private static let maximumBytes = 64 << 20

    init(_ store: EdgeStore) {
        self.store = store
    }

    func send(_ request: UpstreamRequest) async throws(UpstreamFailure) -> ForwardedResponse {
        // Requests with these methods have a body even if it is empty.
        let mayHaveBody = ["POST", "PUT", "PATCH"].contains(request.method)
        do throws(UpstreamError) {
            let response = try await store.pool.send(
                request.method, request.target, fields: request.fields.map { "\($0.name): \($0.value)" },
                hasToken: request.hasOwnToken, takesLong: request.takesLong,
                body: request.body.isEmpty && !mayHaveBody ? nil : request.body,
                mostBytes: Self.maximumBytes)
            return ForwardedResponse(status: response.status, fields: response.fields, body: response.body)
        } catch {
            switch error {
            case .tooLarge(let limit): throw .tooLarge(limit: limit)
            case .overloaded: throw .overloaded
            case .late: throw .late
            case .noResponse, .foreign, .refused, .malformed, .damaged, .closing: throw .away
            }
        }
    }

    var status: EdgeStatus {
        EdgeStatus(
            upstream: store.upstreamURL, isUp: store.isUpstreamUp, failure: store.failure,
            isComplete: store.isComplete, lag: store.lag, waitingEvents: store.waitingEvents)
    }

    func catchUp() async {
        // A failure is ignored: the tasks that follow the feed and the definitions catch up later.
        try? await store.catchUp()
    }
}

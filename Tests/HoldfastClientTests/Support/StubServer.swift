import Foundation
import Synchronization

@testable import HoldfastClient

/// A scripted server: a function that responds to calls, which are recorded.
final class StubServer: HoldfastTransport {
    struct Response: Sendable {
        var status = 200
        var fields: [String: String] = [:]
        var body = ""
        /// Whether the body never ends.
        var isOpen = false

        static func json(_ body: String, _ fields: [String: String] = [:]) -> Response {
            Response(fields: fields, body: body)
        }

        static func status(_ status: Int, _ fields: [String: String] = [:], _ body: String = "") -> Response {
            Response(status: status, fields: fields, body: body)
        }

        /// A refusal in Holdfast's format.
        static func problem(_ status: Int, _ detail: String, _ pointer: String? = nil) -> Response {
            let place = pointer.map { #","pointer":"\#($0)""# } ?? ""
            return Response(
                status: status, fields: ["content-type": "application/problem+json"],
                body: #"{"type":"about:blank","title":"Refused","status":\#(status),"detail":"\#(detail)"\#(place)}"#)
        }
    }

    struct Call: Sendable {
        var path: String
        var query: String?
        var fields: [String: String]
        var body: String

        var lines: [Substring] { body.split(separator: "\n") }

        /// The body as JSON.
        var json: HoldfastValue { (try? JSONDecoder().decode(HoldfastValue.self, from: Data(body.utf8))) ?? .null }
    }

    typealias Handler = @Sendable (Call) async throws(HoldfastError) -> Response

    private struct State {
        var handler: Handler
        var calls: [Call] = []
        var waiters: [(path: String, count: Int, continuation: CheckedContinuation<Void, Never>)] = []
    }

    private let state: Mutex<State>

    init(_ handler: @escaping Handler) {
        state = Mutex(State(handler: handler))
    }

    func respond(with handler: @escaping Handler) {
        state.withLock { $0.handler = handler }
    }

    func calls(_ path: String) -> [Call] {
        state.withLock { $0.calls.filter { $0.path == path } }
    }

    /// The paths of all calls in order.
    var paths: [String] { state.withLock { $0.calls.map(\.path) } }

    /// Returns after this number of calls of a path.
    func untilCalled(_ path: String, count: Int = 1) async {
        await withCheckedContinuation { continuation in
            let ready = state.withLock { state in
                state.waiters.append((path, count, continuation))
                return Self.takeReady(&state)
            }
            for waiter in ready { waiter.resume() }
        }
    }

    private static func takeReady(_ state: inout State) -> [CheckedContinuation<Void, Never>] {
        var ready: [CheckedContinuation<Void, Never>] = []
        let calls = state.calls
        state.waiters.removeAll { waiter in
            let isReady = calls.count { $0.path == waiter.path } >= waiter.count
            if isReady { ready.append(waiter.continuation) }
            return isReady
        }
        return ready
    }

    func open(_ request: TransportRequest) async throws(HoldfastError) -> TransportResponse {
        let call = Call(
            path: request.url.path, query: request.url.query, fields: request.fields,
            body: String(decoding: request.body ?? Data(), as: UTF8.self))
        let (handler, ready) = state.withLock { state in
            state.calls.append(call)
            return (state.handler, Self.takeReady(&state))
        }
        for waiter in ready { waiter.resume() }
        let response = try await handler(call)
        let (body, continuation) = AsyncThrowingStream<Data, any Error>.makeStream()
        continuation.yield(Data(response.body.utf8))
        if !response.isOpen { continuation.finish() }
        return TransportResponse(status: response.status, fields: response.fields, body: body)
    }

    func close() {}
}

import HTTPServer
import HoldfastCore

/// Processes a request that has many elements, such as an array of events, without blocking the event loop for long.
extension Call {
    /// Processes the elements of a request concurrently, on the event loop of the request, and returns the results in
    /// order. Between the starts of two elements it may yield (``TimeSlice``), so that other requests are served.
    ///
    /// - Parameters:
    ///   - indices: the indices of the elements.
    ///   - work: processes the element with an index.
    ///
    /// - Throws: `CancellationError` once the client has disconnected.
    func map<Value: Sendable>(_ indices: Range<Int>, _ work: @escaping (Int) async -> Value) async throws -> [Value] {
        // Safe, because all tasks run on the event loop.
        nonisolated(unsafe) let work = work
        return try await withThrowingTaskGroup(of: (Int, Value).self) { group in
            var slice = TimeSlice(responder)
            for index in indices {
                try await slice.step()
                group.addImmediateTask { (index, await work(index)) }
            }
            var values: [Value?] = Array(repeating: nil, count: indices.count)
            for try await (index, value) in group { values[index] = value }
            return values.compactMap(\.self)
        }
    }

    /// Processes the elements of a request like ``map(_:_:)``, each of them with ``retrying(_:_:)``. An element that
    /// fails does not affect the others.
    func results<Value: Sendable>(
        of indices: Range<Int>, _ projects: ProjectView, _ work: @escaping (Int, Call) async throws -> Value
    ) async throws -> [Result<Value, any Error>] {
        try await map(indices) { index in
            do {
                return .success(try await retrying(projects) { call in try await work(index, call) })
            } catch {
                return .failure(error)
            }
        }
    }
}

/// Yields between the steps of a long request, so that other requests are served in between. Confined to a task of the
/// request's event loop.
struct TimeSlice {
    private let responder: Responder
    private var end = ContinuousClock.now + length

    /// The time after which a step yields.
    private static let length = Duration.milliseconds(5)

    init(_ responder: Responder) {
        self.responder = responder
    }

    /// Yields if the time slice is over. Call it before each step.
    ///
    /// - Throws: `CancellationError` once the client has disconnected.
    mutating func step() async throws {
        try Task.checkCancellation()
        guard ContinuousClock.now > end else { return }
        await responder.yield()
        end = .now + Self.length
        try Task.checkCancellation()
    }
}

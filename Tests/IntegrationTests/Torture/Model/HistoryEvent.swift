/// One operation of one client, as the client saw it. Times are nanoseconds of the monotonic clock.
struct HistoryEvent: Sendable {
    let client: Int
    let user: String
    var operation: Operation
    let invokedAt: UInt64
    /// When the response had been received; of an operation without one, when it could no longer happen.
    var returnedAt: UInt64
    var observation: Observation
}

extension HistoryEvent: CustomStringConvertible {
    var description: String {
        "client \(client), \(user): \(operation) -> \(observation) [\(invokedAt / 1_000)..\(returnedAt / 1_000) µs]"
    }
}

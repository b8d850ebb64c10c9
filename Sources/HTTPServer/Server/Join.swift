internal import Synchronization

/// Waits for a fixed number of results that arrive on any thread, and passes all of them on in order.
public final class Join<Value: Sendable>: Sendable {
    private struct State {
        var values: [Value?]
        var missing: Int
    }

    private let state: Mutex<State>
    private let completion: @Sendable ([Value]) -> Void

    /// - Parameters:
    ///   - count: the number of results; with 0 the completion is called at once.
    ///   - completion: called once, on the thread that sets the last result.
    public init(_ count: Int, completion: @escaping @Sendable ([Value]) -> Void) {
        state = Mutex(State(values: Array(repeating: nil, count: count), missing: count))
        self.completion = completion
        if count == 0 { completion([]) }
    }

    /// Sets the result at this index, once.
    ///
    /// - Parameter value: `nil` leaves this result out.
    public func set(_ value: Value?, at index: Int) {
        let all = state.withLock { state -> [Value]? in
            state.values[index] = value
            state.missing -= 1
            return state.missing == 0 ? state.values.compactMap(\.self) : nil
        }
        if let all { completion(all) }
    }
}

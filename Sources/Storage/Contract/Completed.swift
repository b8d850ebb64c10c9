public import Synchronization

/// Waits for an operation that reports its result to a completion, such as a read or a change of a session:
///
///     let profile = try await completed { session.profile(of: userID, $0) }
///
/// If the operation calls the completion before it returns, the caller is not suspended. If the completion is never
/// called, because its executor has stopped, the caller stays suspended for ever.
///
/// - Throws: the error that the operation reports.
@inlinable
public func completed<Value: Sendable, Failure: Error>(
    _ operation: (_ completion: @escaping @Sendable (Result<Value, Failure>) -> Void) -> Void
) async throws(Failure) -> Value {
    try await settled(operation).get()
}

/// Waits for an operation as ``completed(_:)`` does, and returns the reported value. The value may be a `Result`, whose
/// error is then not thrown.
@inlinable
public func settled<Value: Sendable>(
    _ operation: (_ completion: @escaping @Sendable (Value) -> Void) -> Void
) async -> Value {
    let pending = PendingValue<Value>()
    operation { pending.settle($0) }
    if let value = pending.value { return value }
    return await withUnsafeContinuation { pending.wait($0) }
}

/// Begins an operation for each element, then waits for all of them.
///
/// - Returns: the reported values, in the order of the elements.
@inlinable
public func settled<Element, Value: Sendable>(
    each elements: some Collection<Element>,
    _ operation: (Element, _ completion: @escaping @Sendable (Value) -> Void) -> Void
) async -> [Value] {
    await settled { completion in
        let join = Join<Value>(elements.count, completion: completion)
        for (index, element) in elements.enumerated() { operation(element) { join.set($0, at: index) } }
    }
}

extension Result where Success: Sendable {
    /// Calls an asynchronous function, and returns its value or its error as a result.
    @inlinable
    public static func of(_ body: () async throws(Failure) -> Success) async -> Self {
        do throws(Failure) {
            return .success(try await body())
        } catch {
            return .failure(error)
        }
    }
}

/// A value that an operation sets once, on any thread, and for which one task waits.
@usableFromInline
final class PendingValue<Value: Sendable>: Sendable {
    @usableFromInline
    enum State {
        /// The value is not set, and nobody waits.
        case begun
        case waiting(UnsafeContinuation<Value, Never>)
        case settled(Value)
    }

    @usableFromInline let state = Mutex(State.begun)

    @inlinable
    init() {}

    /// The value; `nil` before it is set.
    @inlinable var value: Value? { state.withLock { if case .settled(let value) = $0 { value } else { nil } } }

    /// Sets the value, and resumes the task if it waits.
    @inlinable
    func settle(_ value: Value) {
        let waiting = state.withLock { state -> UnsafeContinuation<Value, Never>? in
            defer { state = .settled(value) }
            return if case .waiting(let continuation) = state { continuation } else { nil }
        }
        waiting?.resume(returning: value)
    }

    /// Resumes a task with the value, now or once the value is set.
    @inlinable
    func wait(_ continuation: UnsafeContinuation<Value, Never>) {
        let value = state.withLock { state -> Value? in
            if case .settled(let value) = state { return value }
            state = .waiting(continuation)
            return nil
        }
        if let value { continuation.resume(returning: value) }
    }
}

/// Waits for a fixed number of results that arrive on any thread, and passes all of them on in order.
@usableFromInline
package final class Join<Value: Sendable>: Sendable {
    @usableFromInline
    struct State {
        @usableFromInline var values: [Value?]
        @usableFromInline var missing: Int

        @usableFromInline
        init(count: Int) {
            values = Array(repeating: nil, count: count)
            missing = count
        }
    }

    @usableFromInline let state: Mutex<State>
    @usableFromInline let completion: @Sendable ([Value]) -> Void

    /// - Parameters:
    ///   - count: the number of results; with 0 the completion is called at once.
    ///   - completion: called once, on the thread that sets the last result.
    @inlinable
    package init(_ count: Int, completion: @escaping @Sendable ([Value]) -> Void) {
        state = Mutex(State(count: count))
        self.completion = completion
        if count == 0 { completion([]) }
    }

    /// Sets the result at this index, once.
    @inlinable
    package func set(_ value: Value, at index: Int) {
        let all = state.withLock { state -> [Value]? in
            state.values[index] = value
            state.missing -= 1
            return state.missing == 0 ? state.values.compactMap(\.self) : nil
        }
        if let all { completion(all) }
    }
}

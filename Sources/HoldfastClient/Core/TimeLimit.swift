import Synchronization

/// Waits for work for a time only; the work goes on when the time is over.
///
/// - Returns: `nil` when the time is over, or the calling task is cancelled.
func value<Value: Sendable>(
    within duration: Duration, _ clock: any HoldfastClock, of work: @escaping @Sendable () async -> Value
) async -> Value? {
    let race = Race<Value>()
    return await withTaskCancellationHandler {
        await withCheckedContinuation { continuation in
            race.begin(continuation)
            let timer = Task {
                try? await clock.sleep(for: duration)
                race.end(nil)
            }
            Task {
                race.end(await work())
                timer.cancel()
            }
        }
    } onCancel: {
        race.end(nil)
    }
}

/// Takes the first of several ends.
private final class Race<Value: Sendable>: Sendable {
    private struct State {
        var continuation: CheckedContinuation<Value?, Never>?
        var hasEnded = false
    }

    private let state = Mutex(State())

    func begin(_ continuation: CheckedContinuation<Value?, Never>) {
        let hasEnded = state.withLock { state in
            if !state.hasEnded { state.continuation = continuation }
            return state.hasEnded
        }
        if hasEnded { continuation.resume(returning: nil) }
    }

    func end(_ value: Value?) {
        let continuation = state.withLock { state in
            defer { state.continuation = nil }
            state.hasEnded = true
            return state.continuation
        }
        continuation?.resume(returning: value)
    }
}

/// Waits for the value of an operation. The operation continues after the timeout and after a cancellation, because a
/// late response is still of use.
///
/// - Parameter duration: the timeout; `nil` for none.
/// - Returns: `nil` after the timeout, or when the calling task is cancelled.
func value<Value: Sendable>(
    within duration: Duration?, _ clock: any HoldfastClock, of work: @escaping @Sendable () async -> Value
) async -> Value? {
    let race = Race<Value>()
    return await withTaskCancellationHandler {
        await withCheckedContinuation { continuation in
            race.start(continuation)
            let timer = duration.map { duration in
                Task {
                    try? await clock.sleep(for: duration)
                    race.finish(nil)
                }
            }
            Task {
                race.finish(await work())
                timer?.cancel()
            }
        }
    } onCancel: {
        race.finish(nil)
    }
}

/// Resumes a continuation with the first of several outcomes, and ignores the others.
private final class Race<Value: Sendable>: Sendable {
    private struct State {
        var continuation: CheckedContinuation<Value?, Never>?
        var isFinished = false
    }

    private let state = Locked(State())

    func start(_ continuation: CheckedContinuation<Value?, Never>) {
        let isFinished = state.withLock { state in
            if !state.isFinished { state.continuation = continuation }
            return state.isFinished
        }
        // The task was cancelled before the race began.
        if isFinished { continuation.resume(returning: nil) }
    }

    func finish(_ value: Value?) {
        let continuation = state.withLock { state in
            defer { state.continuation = nil }
            state.isFinished = true
            return state.continuation
        }
        continuation?.resume(returning: value)
    }
}

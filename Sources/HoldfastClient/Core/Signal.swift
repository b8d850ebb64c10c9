import Synchronization

/// Wakes the one task that waits. A ring that comes while nobody waits is kept for the next one.
final class Signal: Sendable {
    private struct State {
        var hasRung = false
        var waiter: CheckedContinuation<Void, Never>?
    }

    private let state = Mutex(State())

    func ring() {
        let waiter = state.withLock { state in
            defer { state.waiter = nil }
            if state.waiter == nil { state.hasRung = true }
            return state.waiter
        }
        waiter?.resume()
    }

    /// Returns when it has rung, or the task is cancelled.
    func wait() async {
        await withTaskCancellationHandler {
            await withCheckedContinuation { waiter in
                let mayGo = state.withLock { state in
                    if state.hasRung || Task.isCancelled {
                        state.hasRung = false
                        return true
                    }
                    state.waiter = waiter
                    return false
                }
                if mayGo { waiter.resume() }
            }
        } onCancel: {
            let waiter = state.withLock { state in
                defer { state.waiter = nil }
                return state.waiter
            }
            waiter?.resume()
        }
    }

    /// Returns when it has rung and the condition holds, when the time is over, or when the task is cancelled.
    func wait(
        atMost duration: Duration, _ clock: any HoldfastClock,
        until isEnough: @escaping @Sendable () -> Bool = { true }
    ) async {
        await withTaskGroup(of: Void.self) { group in
            group.addTask { try? await clock.sleep(for: duration) }
            group.addTask { [self] in
                repeat { await wait() } while !isEnough() && !Task.isCancelled
            }
            await group.next()
            group.cancelAll()
        }
    }
}

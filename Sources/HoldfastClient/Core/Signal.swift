/// A doorbell for one task: ``ring()`` wakes the task that waits. A ring without a waiter is kept for the next wait.
///
/// Several rings before a wait count as one, so the waiter must look at the state that they announce.
final class Signal: Sendable {
    private struct State {
        var hasRung = false
        var waiter: CheckedContinuation<Void, Never>?
    }

    private let state = Locked(State())

    func ring() {
        let waiter = state.withLock { state in
            defer { state.waiter = nil }
            if state.waiter == nil { state.hasRung = true }
            return state.waiter
        }
        waiter?.resume()
    }

    /// Discards a ring without a waiter.
    func reset() {
        state.withLock { $0.hasRung = false }
    }

    /// Returns after a ring, or when the task is cancelled.
    func wait() async {
        await withTaskCancellationHandler {
            await withCheckedContinuation { waiter in
                let resumesAtOnce = state.withLock { state in
                    if state.hasRung || Task.isCancelled {
                        state.hasRung = false
                        return true
                    }
                    state.waiter = waiter
                    return false
                }
                if resumesAtOnce { waiter.resume() }
            }
        } onCancel: {
            let waiter = state.withLock { state in
                defer { state.waiter = nil }
                return state.waiter
            }
            waiter?.resume()
        }
    }

    /// Returns after a ring at which the condition is true, after the time-out, or when the task is cancelled.
    ///
    /// - Parameter isEnough: the condition; by default any ring suffices.
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

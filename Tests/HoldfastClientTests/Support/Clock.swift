import Foundation
import Synchronization

@testable import HoldfastClient

/// A clock that only a test advances.
final class ManualClock: HoldfastClock {
    private struct Sleeper {
        var end: Date
        var duration: Duration
        var continuation: CheckedContinuation<Void, any Error>
    }

    private struct State {
        var now = Date(timeIntervalSince1970: 1_800_000_000)
        var sleepers: [UInt64: Sleeper] = [:]
        var nextID: UInt64 = 0
        var waiters: [(count: Int, durations: ClosedRange<Duration>, continuation: CheckedContinuation<Void, Never>)] =
            []
    }

    private let state = Mutex(State())

    var now: Date { state.withLock { $0.now } }

    func sleep(for duration: Duration) async throws {
        let id = state.withLock { state in
            defer { state.nextID += 1 }
            return state.nextID
        }
        try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { continuation in
                let (isOver, ready) = state.withLock { state -> (Bool, [CheckedContinuation<Void, Never>]) in
                    guard !Task.isCancelled, duration > .zero else { return (true, []) }
                    state.sleepers[id] = Sleeper(
                        end: state.now.addingTimeInterval(duration.inSeconds), duration: duration,
                        continuation: continuation)
                    return (false, Self.takeReady(&state))
                }
                if isOver { continuation.resume(with: Result { try Task.checkCancellation() }) }
                for waiter in ready { waiter.resume() }
            }
        } onCancel: {
            state.withLock { $0.sleepers.removeValue(forKey: id) }?.continuation.resume(throwing: CancellationError())
        }
    }

    /// Advances the time and wakes sleepers that are due.
    func advance(by duration: Duration) {
        let due = state.withLock { state in
            state.now.addTimeInterval(duration.inSeconds)
            let due = state.sleepers.filter { $0.value.end <= state.now }
            for id in due.keys { state.sleepers[id] = nil }
            return due.values.sorted { $0.end < $1.end }
        }
        for sleeper in due { sleeper.continuation.resume() }
    }

    /// Sets what the clock shows, without time passing: sleepers wait as long as they would have.
    func set(by difference: Duration) {
        state.withLock { state in
            state.now.addTimeInterval(difference.inSeconds)
            for id in state.sleepers.keys { state.sleepers[id]?.end.addTimeInterval(difference.inSeconds) }
        }
    }

    /// The durations of all sleepers.
    var sleeping: [Duration] { state.withLock { $0.sleepers.values.map(\.duration) } }

    /// Returns when there are sleepers of exactly this duration.
    func untilSleeping(for duration: Duration, count: Int = 1) async {
        await untilSleeping(in: duration - .milliseconds(1)...duration + .milliseconds(1), count: count)
    }

    /// Returns when there are sleepers of such durations.
    func untilSleeping(in durations: ClosedRange<Duration>, count: Int = 1) async {
        await withCheckedContinuation { continuation in
            let ready = state.withLock { state in
                state.waiters.append((count, durations, continuation))
                return Self.takeReady(&state)
            }
            for waiter in ready { waiter.resume() }
        }
    }

    private static func takeReady(_ state: inout State) -> [CheckedContinuation<Void, Never>] {
        var ready: [CheckedContinuation<Void, Never>] = []
        let sleepers = state.sleepers
        state.waiters.removeAll { waiter in
            let isReady = sleepers.values.count { waiter.durations.contains($0.duration) } >= waiter.count
            if isReady { ready.append(waiter.continuation) }
            return isReady
        }
        return ready
    }
}

/// Suspends callers until it is opened.
final class Gate: Sendable {
    private struct State {
        var isOpen = false
        var waiting: [CheckedContinuation<Void, Never>] = []
    }

    private let state = Mutex(State())

    func passed() async {
        await withCheckedContinuation { continuation in
            let isOpen = state.withLock { state in
                if !state.isOpen { state.waiting.append(continuation) }
                return state.isOpen
            }
            if isOpen { continuation.resume() }
        }
    }

    func open() {
        let waiting = state.withLock { state in
            defer { state.waiting = [] }
            state.isOpen = true
            return state.waiting
        }
        for continuation in waiting { continuation.resume() }
    }
}

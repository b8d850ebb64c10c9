/// Wakes the single task that waits on it. A ring without a waiter is kept for the next wait.
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

    /// Returns after a ring with the condition true, after the time-out, or when the task is cancelled.
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

/// Runs an operation, usually once at a time. Callers that arrive while it runs share the next run, which sees everything
/// that happened before they called.
actor SingleFlight<Value: Sendable> {
    private struct Run {
        var number: Int
        var task: Task<Value, Never>
    }

    private let work: @Sendable () async -> Value
    private let patience: Patience?
    /// The runs in progress, oldest first. There are several only if older ones are stuck or were replaced.
    private var running: [Run] = []
    private var next: Task<Value, Never>?
    private var started = 0
    /// The latest run that has ended.
    private var last: (number: Int, value: Value)?

    /// The maximum time for which the next run waits for the previous one. After it the next run starts concurrently.
    struct Patience: Sendable {
        var longest: Duration
        var clock: any HoldfastClock
    }

    /// - Parameter patience: `nil` if the next run always waits.
    init(patience: Patience? = nil, _ work: @escaping @Sendable () async -> Value) {
        self.work = work
        self.patience = patience
    }

    /// - Parameter replacing: whether to cancel the runs in progress, because the input of the operation has changed.
    ///   Their callers get the value of the new run.
    func run(replacing: Bool = false) async -> Value {
        if replacing {
            for run in running { run.task.cancel() }
            return await start().value
        }
        if let next { return await next.value }
        guard let current = running.last else { return await start().value }
        let task = Task {
            await untilEnded(orStuck: current.task)
            return await startNext(after: current.number)
        }
        next = task
        return await task.value
    }

    private func untilEnded(orStuck current: Task<Value, Never>) async {
        if let patience {
            _ = await value(within: patience.longest, patience.clock) { await current.value }
        } else {
            _ = await current.value
        }
    }

    private func startNext(after number: Int) async -> Value {
        next = nil
        if let later = await later(than: number) { return later }
        return await start().value
    }

    /// Returns the value of a run that has started later; `nil` if there is none.
    private func later(than number: Int) async -> Value? {
        if let later = running.last, later.number > number { return await later.task.value }
        return last.flatMap { $0.number > number ? $0.value : nil }
    }

    private func start() -> Task<Value, Never> {
        started += 1
        let number = started
        let task = Task {
            let value = await work()
            return await ended(number, value)
        }
        running.append(Run(number: number, task: task))
        return task
    }

    /// - Returns: the value of the run, or of a later one if it was cancelled for that.
    private func ended(_ number: Int, _ value: Value) async -> Value {
        running.removeAll { $0.number == number }
        for older in running where older.number < number { older.task.cancel() }
        if Task.isCancelled, let later = await later(than: number) { return later }
        if last.map({ $0.number < number }) ?? true { last = (number, value) }
        return value
    }
}

/// Waits for an operation, with a timeout unless the duration is `nil`. The operation continues after the timeout.
///
/// - Returns: `nil` after the timeout, or when the calling task is cancelled.
func value<Value: Sendable>(
    within duration: Duration?, _ clock: any HoldfastClock, of work: @escaping @Sendable () async -> Value
) async -> Value? {
    let race = Race<Value>()
    return await withTaskCancellationHandler {
        await withCheckedContinuation { continuation in
            race.begin(continuation)
            let timer = duration.map { duration in
                Task {
                    try? await clock.sleep(for: duration)
                    race.end(nil)
                }
            }
            Task {
                race.end(await work())
                timer?.cancel()
            }
        }
    } onCancel: {
        race.end(nil)
    }
}

/// Resumes its continuation with the first of several outcomes.
private final class Race<Value: Sendable>: Sendable {
    private struct State {
        var continuation: CheckedContinuation<Value?, Never>?
        var hasEnded = false
    }

    private let state = Locked(State())

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

/// A list of callbacks.
final class Listeners<Value: Sendable>: Sendable {
    private struct Listener {
        var call: @Sendable (Value) -> Void
        var end: @Sendable () -> Void
    }

    private struct State {
        var listeners: [UInt64: Listener] = [:]
        var next: UInt64 = 0
        var hasEnded = false
    }

    private let state = Locked(State())

    var isEmpty: Bool { state.withLock { $0.listeners.isEmpty } }

    /// - Parameter end: called by ``end()`` and ``removeAll()``.
    func add(
        _ call: @escaping @Sendable (Value) -> Void, end: @escaping @Sendable () -> Void = {}
    ) -> ListenerToken {
        let (id, hasEnded) = state.withLock { state in
            defer { state.next &+= 1 }
            state.listeners[state.next] = Listener(call: call, end: end)
            return (state.next, state.hasEnded)
        }
        if hasEnded { end() }
        return ListenerToken { [weak self] in self?.remove(id) }
    }

    private func remove(_ id: UInt64) {
        // Released outside the lock: a closure may own an object whose deinit takes the lock.
        _ = state.withLock { $0.listeners.removeValue(forKey: id) }
    }

    func removeAll() {
        let listeners = state.withLock { state in
            defer { state.listeners = [:] }
            return state.listeners
        }
        for listener in listeners.values { listener.end() }
    }

    /// Calls the `end` of all listeners, and of those that are added later. They stay registered.
    func end() {
        let listeners = state.withLock { state in
            state.hasEnded = true
            return state.listeners
        }
        for listener in listeners.values { listener.end() }
    }

    /// Returns a stream of future values, mapped by `element`. Values that are mapped to `nil` are left out.
    ///
    /// - Parameter count: the maximum number of buffered elements. The newest are kept.
    func stream<Element: Sendable>(
        buffering count: Int, _ element: @escaping @Sendable (Value) -> Element?
    ) -> AsyncStream<Element> {
        let (stream, continuation) = AsyncStream<Element>.makeStream(bufferingPolicy: .bufferingNewest(count))
        let token = add({ value in
            if let element = element(value) { continuation.yield(element) }
        }) { continuation.finish() }
        continuation.onTermination = { _ in token.cancel() }
        return stream
    }

    /// Calls all callbacks outside the lock, in the order of registration.
    func notify(_ value: Value) {
        for (_, listener) in state.withLock({ $0.listeners.sorted { $0.key < $1.key } }) { listener.call(value) }
    }
}

/// Removes a listener. The listener stays registered even if the token is discarded.
public struct ListenerToken: Sendable, Hashable {
    private static let count = Locked<UInt64>(0)

    private let id = Self.count.withLock { count in
        count &+= 1
        return count
    }
    private let end: @Sendable () -> Void

    /// - Parameter end: called by ``cancel()``, which removes the listener.
    public init(_ end: @escaping @Sendable () -> Void) {
        self.end = end
    }

    public static func == (left: ListenerToken, right: ListenerToken) -> Bool { left.id == right.id }

    public func hash(into hasher: inout Hasher) { hasher.combine(id) }

    /// Removes the listener; a call in progress finishes.
    public func cancel() {
        end()
    }
}

/// Tokens that are cancelled when this object is released, with the owner of the object.
final class OwnedTokens: Sendable {
    private let tokens = Locked<[ListenerToken]>([])

    func add(_ token: ListenerToken) {
        tokens.withLock { $0.append(token) }
    }

    deinit {
        for token in tokens.withLock({ $0 }) { token.cancel() }
    }
}

/// A function that runs at most once at a time. If ``run()`` is called while it runs, even by the function itself, it
/// runs again afterwards.
final class Repetition: Sendable {
    private let work: @Sendable () -> Void
    private let state = Locked((isRunning: false, isWanted: false))

    init(_ work: @escaping @Sendable () -> Void) {
        self.work = work
    }

    func run() {
        let starts = state.withLock { state in
            defer { state = (isRunning: true, isWanted: state.isRunning) }
            return !state.isRunning
        }
        guard starts else { return }
        repeat { work() } while isWantedAgain()
    }

    private func isWantedAgain() -> Bool {
        state.withLock { state in
            defer { state = (isRunning: state.isWanted, isWanted: false) }
            return state.isWanted
        }
    }
}

/// Runs an operation once at a time, such as the fetch of the flags.
///
/// A caller that arrives while the operation runs waits for the next run, because the current run may not see what
/// happened before the call. All such callers share the next run.
///
/// There are two exceptions, in which runs overlap: a run with ``run(replacing:)`` cancels its predecessors, and a run
/// that exceeds the ``Patience`` is no longer waited for. A later run then gives its value to the callers of the
/// earlier one.
actor SingleFlight<Value: Sendable> {
    private struct Run {
        var number: Int
        var task: Task<Value, Never>
    }

    private let work: @Sendable () async -> Value
    private let patience: Patience?
    /// The runs in progress, oldest first. There are several only if older ones are stuck or were replaced.
    private var running: [Run] = []
    /// The run that waits for the current one to end.
    private var waitingRun: Task<Value, Never>?
    /// The number of runs that have started. Runs are numbered from 1.
    private var startedRuns = 0
    /// The latest run that has ended, with its value.
    private var lastEnded: (number: Int, value: Value)?

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

    /// Runs the operation, or joins the run that is about to start.
    ///
    /// - Parameter replacing: whether to cancel the runs in progress, because the input of the operation has changed.
    ///   Their callers get the value of the new run.
    func run(replacing: Bool = false) async -> Value {
        if replacing {
            for run in running { run.task.cancel() }
            return await start().value
        }
        if let waitingRun { return await waitingRun.value }
        guard let current = running.last else { return await start().value }
        let task = Task {
            await waitForEnd(of: current.task)
            return await startWaitingRun(after: current.number)
        }
        waitingRun = task
        return await task.value
    }

    /// Returns when a run has ended, or when the patience is over.
    private func waitForEnd(of current: Task<Value, Never>) async {
        if let patience {
            _ = await value(within: patience.longest, patience.clock) { await current.value }
        } else {
            _ = await current.value
        }
    }

    /// Starts the run that waited for another one, unless a run has started meanwhile, whose value then counts.
    private func startWaitingRun(after number: Int) async -> Value {
        waitingRun = nil
        if let later = await valueOfRun(after: number) { return later }
        return await start().value
    }

    /// Returns the value of a run that has started later; `nil` if there is none.
    private func valueOfRun(after number: Int) async -> Value? {
        if let later = running.last, later.number > number { return await later.task.value }
        return lastEnded.flatMap { $0.number > number ? $0.value : nil }
    }

    /// Starts a run, even if others are in progress.
    private func start() -> Task<Value, Never> {
        startedRuns += 1
        let number = startedRuns
        let task = Task {
            let value = await work()
            return await end(run: number, value)
        }
        running.append(Run(number: number, task: task))
        return task
    }

    /// Ends a run, and cancels earlier runs that are stuck.
    ///
    /// - Returns: the value of the run; if it was cancelled for a later run, the value of that run.
    private func end(run number: Int, _ value: Value) async -> Value {
        running.removeAll { $0.number == number }
        for older in running where older.number < number { older.task.cancel() }
        if Task.isCancelled, let later = await valueOfRun(after: number) { return later }
        // A stuck run may end after a later run. The later run then stays the latest one.
        if lastEnded.map({ $0.number < number }) ?? true { lastEnded = (number, value) }
        return value
    }
}

/// Runs a function at most once at a time, without blocking. If ``run()`` is called during a run, by another thread or
/// by the function itself, the function runs once more afterwards.
final class Repetition: Sendable {
    private let work: @Sendable () -> Void
    private let state = Locked(State())

    private struct State {
        var isRunning = false
        /// Whether ``run()`` was called during the current run.
        var isRequestedAgain = false
    }

    init(_ work: @escaping @Sendable () -> Void) {
        self.work = work
    }

    func run() {
        let starts = state.withLock { state in
            if state.isRunning {
                state.isRequestedAgain = true
                return false
            }
            state.isRunning = true
            return true
        }
        guard starts else { return }
        repeat { work() } while continues()
    }

    /// Whether the function must run again. If not, ends the run.
    private func continues() -> Bool {
        state.withLock { state in
            state.isRunning = state.isRequestedAgain
            state.isRequestedAgain = false
            return state.isRunning
        }
    }
}

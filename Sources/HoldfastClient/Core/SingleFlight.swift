/// Runs one piece of work at a time. Those who ask while it runs wait for it to end and share the run after it, which
/// sees all that had happened when they asked.
actor SingleFlight<Value: Sendable> {
    private let work: @Sendable () async -> Value
    private var running: Task<Value, Never>?
    private var next: Task<Value, Never>?

    init(_ work: @escaping @Sendable () async -> Value) {
        self.work = work
    }

    func run() async -> Value {
        if let next { return await next.value }
        guard let current = running else { return await start().value }
        let task = Task {
            _ = await current.value
            return await self.startNext().value
        }
        next = task
        return await task.value
    }

    private func start() -> Task<Value, Never> {
        let task = Task {
            let value = await work()
            ended()
            return value
        }
        running = task
        return task
    }

    private func startNext() -> Task<Value, Never> {
        next = nil
        return start()
    }

    private func ended() {
        running = nil
    }
}

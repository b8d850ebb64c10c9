import CSystem
import Dispatch
import Glibc
import Synchronization

/// A serial queue with a thread of its own, for work that comes all the time.
///
/// A serial `DispatchQueue` borrows a thread from a pool for each piece of work. Dispatch starts another thread
/// whenever all threads are busy, up to hundreds. These threads, with their stacks and the allocator's caches, stay as
/// long as work comes.
final class ThreadQueue: Sendable {
    /// The jobs of the thread. The thread keeps this object alive until it has run all jobs that were submitted before
    /// the queue was released.
    private final class Jobs: Sendable {
        private struct State {
            var waiting: [@Sendable () -> Void] = []
            var isClosed = false
        }

        private let name: String
        private let state = Mutex(State())
        private let wakeUps = DispatchSemaphore(value: 0)
        /// The thread's id; 0 before it has started.
        private let thread = Atomic<UInt>(0)

        init(name: String) {
            self.name = name
        }

        /// Whether the caller runs on the thread.
        var isCurrent: Bool { thread.load(ordering: .relaxed) == UInt(pthread_self()) }

        /// Adds a job. Wakes the thread only for the first waiting job, because the thread takes all waiting jobs at
        /// once.
        func add(_ job: @escaping @Sendable () -> Void) {
            let isFirst = state.withLock { state in
                state.waiting.append(job)
                return state.waiting.count == 1
            }
            if isFirst { wakeUps.signal() }
        }

        func close() {
            state.withLock { $0.isClosed = true }
            wakeUps.signal()
        }

        /// Runs jobs until the queue is released; the function of the thread.
        func run() {
            csystem_name_thread(name)
            thread.store(UInt(pthread_self()), ordering: .relaxed)
            while true {
                wakeUps.wait()
                let (jobs, isClosed) = state.withLock { state in
                    defer { state.waiting = [] }
                    return (state.waiting, state.isClosed)
                }
                for job in jobs { job() }
                if isClosed { return }
            }
        }
    }

    private let jobs: Jobs

    /// Starts the thread. While the system can create no thread, the call tries again every 10 milliseconds; Dispatch
    /// waits, too.
    ///
    /// - Parameter name: the name of the thread. Linux keeps 15 bytes of it.
    init(name: String) {
        jobs = Jobs(name: name)
        let context = Unmanaged.passRetained(jobs).toOpaque()
        var thread = pthread_t()
        while pthread_create(
            &thread, nil,
            { context in
                if let context { Unmanaged<Jobs>.fromOpaque(context).takeRetainedValue().run() }
                return nil
            }, context) != 0
        { usleep(10_000) }
        pthread_detach(thread)
    }

    deinit {
        jobs.close()
    }

    /// Schedules work after what was submitted earlier.
    func async(_ work: @escaping @Sendable () -> Void) {
        jobs.add(work)
    }

    /// Runs work after what was submitted earlier, and waits for it. Do not call it on the queue.
    func sync(_ work: @escaping @Sendable () -> Void) {
        let isDone = DispatchSemaphore(value: 0)
        jobs.add {
            work()
            isDone.signal()
        }
        isDone.wait()
    }

    /// Traps unless called on the queue.
    func expectCurrent() {
        precondition(jobs.isCurrent, "used on another thread")
    }
}

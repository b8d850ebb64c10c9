import Dispatch
import Synchronization
import Testing

@testable import StorageSQLite

@Suite struct ThreadQueueTests {
    @Test func `Work of several threads runs one at a time, that of each thread in its order`() {
        let queue = ThreadQueue(name: "test")
        let begun = Mutex<[[Int]]>([[], [], []])
        let running = Atomic<Int>(0)
        let most = Atomic<Int>(0)
        DispatchQueue.concurrentPerform(iterations: 3) { thread in
            for number in 0..<1_000 {
                queue.async {
                    most.max(running.add(1, ordering: .relaxed).newValue, ordering: .relaxed)
                    begun.withLock { $0[thread].append(number) }
                    running.subtract(1, ordering: .relaxed)
                }
            }
        }
        queue.sync {}
        #expect(begun.withLock { $0 } == Array(repeating: Array(0..<1_000), count: 3))
        #expect(most.load(ordering: .relaxed) == 1)
    }

    @Test func `Work is on the queue's thread, and may submit more`() {
        let queue = ThreadQueue(name: "test")
        let isDone = DispatchSemaphore(value: 0)
        queue.async {
            queue.expectCurrent()
            queue.async { isDone.signal() }
        }
        isDone.wait()
    }

    @Test func `What was submitted before the queue is released runs, and the thread ends`() {
        let (gate, isDone) = (DispatchSemaphore(value: 0), DispatchSemaphore(value: 0))
        weak let released: Released?
        do {
            let queue = ThreadQueue(name: "test")
            let object = Released { isDone.signal() }
            released = object
            queue.async { gate.wait() }
            queue.async { withExtendedLifetime(object) {} }
        }
        #expect(released != nil)
        gate.signal()
        isDone.wait()
    }

    /// Says when it is released.
    private final class Released: Sendable {
        private let report: @Sendable () -> Void

        init(_ report: @escaping @Sendable () -> Void) { self.report = report }

        deinit { report() }
    }
}

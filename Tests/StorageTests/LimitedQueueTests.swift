import Dispatch
import Storage
import Synchronization
import Testing

@Suite struct LimitedQueueTests {
    @Test func `What exceeds the limit waits, and is run in the order in which it came`() async {
        let queue = LimitedQueue(label: "test", limit: 1, qos: .userInitiated)
        let (gate, order) = (DispatchSemaphore(value: 0), Order())
        let first = Task.immediate { await queue.run { gate.wait() } }
        let others = (1...50).map { number in
            Task.immediate { await queue.run { order.begin(number) } }
        }
        #expect(order.begun.withLock { $0.isEmpty })
        gate.signal()
        await first.value
        for other in others { await other.value }
        #expect(order.begun.withLock { $0 } == Array(1...50))
    }

    @Test func `As many pieces of work as allowed run at the same time`() async {
        let queue = LimitedQueue(label: "test", limit: 2, qos: .userInitiated)
        let (one, other) = (DispatchSemaphore(value: 0), DispatchSemaphore(value: 0))
        // Each waits for the other.
        let first = Task.immediate { await queue.run { Self.meet(one, other) } }
        let second = Task.immediate { await queue.run { Self.meet(other, one) } }
        await first.value
        await second.value
        // The limit is free again.
        #expect(await queue.run { 3 } == 3)
    }

    @Test func `What would wait behind too many others is not run`() async {
        let queue = LimitedQueue(label: "test", limit: 1, qos: .userInitiated)
        let gate = DispatchSemaphore(value: 0)
        let first = Task.immediate { await queue.run(mostWaiting: 1) { gate.wait() } }
        let second = Task.immediate { await queue.run(mostWaiting: 1) { 2 } }
        let third: Int? = await queue.run(mostWaiting: 1) { 3 }
        #expect(third == nil)
        gate.signal()
        #expect(await first.value != nil)
        #expect(await second.value == 2)
    }

    private static func meet(_ mine: DispatchSemaphore, _ others: DispatchSemaphore) {
        mine.signal()
        others.wait()
    }

    private final class Order: Sendable {
        let begun = Mutex<[Int]>([])

        func begin(_ number: Int) { begun.withLock { $0.append(number) } }
    }
}

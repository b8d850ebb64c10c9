import Synchronization
import Testing

@testable import HTTPServer

@Suite struct JoinTests {
    private final class Calls: Sendable {
        let values = Mutex<[[Int]]>([])
    }

    @Test(
        arguments: [
            ([(0, 10), (1, 11), (2, 12)], [10, 11, 12]), ([(2, 12), (0, 10), (1, 11)], [10, 11, 12]),
            ([(1, 11), (2, nil), (0, 10)], [10, 11]), ([(0, nil), (1, nil)], []), ([], []),
        ] as [([(Int, Int?)], [Int])])
    func allResultsAreHandedOverOnceInOrder(_ results: [(Int, Int?)], expected: [Int]) {
        let calls = Calls()
        let join = Join<Int>(results.count) { values in calls.values.withLock { $0.append(values) } }
        for (index, value) in results {
            #expect(calls.values.withLock { $0.isEmpty })
            join.set(value, at: index)
        }
        #expect(calls.values.withLock { $0 } == [expected])
    }
}

import Storage
import Synchronization
import Testing

@Suite struct CompletedTests {
    /// Completions that the test calls.
    private final class Operations<Value: Sendable>: Sendable {
        private let completions = Mutex<[@Sendable (Value) -> Void]>([])

        func begin(_ completion: @escaping @Sendable (Value) -> Void) {
            completions.withLock { $0.append(completion) }
        }

        var count: Int { completions.withLock(\.count) }

        func complete(_ index: Int, with value: Value) {
            completions.withLock { $0[index] }(value)
        }
    }

    @Test func `A result that is there at once is returned`() async throws {
        #expect(try await completed { (done: (Result<Int, StorageError>) -> Void) in done(.success(1)) } == 1)
    }

    @Test func `A failure is thrown`() async {
        await #expect(throws: StorageError.closed) {
            try await completed { (done: (Result<Int, StorageError>) -> Void) in done(.failure(.closed)) }
        }
    }

    @Test func `A result of another thread is waited for`() async throws {
        let operations = Operations<Result<Int, StorageError>>()
        async let value = completed { operations.begin($0) }
        while operations.count == 0 { await Task.yield() }
        operations.complete(0, with: .success(7))
        #expect(try await value == 7)
    }

    @Test(arguments: [[0, 1, 2], [2, 0, 1], [1, 2, 0], []])
    func `All results are returned in the order of the elements`(_ order: [Int]) async {
        let operations = Operations<Int>()
        async let values = settled(each: order.indices) { operations.begin($1) }
        while operations.count < order.count { await Task.yield() }
        for index in order { operations.complete(index, with: index * 10) }
        #expect(await values == order.indices.map { $0 * 10 })
    }
}

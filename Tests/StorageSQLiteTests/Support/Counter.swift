import Synchronization

/// A number that any thread may raise.
final class Counter: Sendable {
    private let number = Atomic(0)

    var value: Int { number.load(ordering: .sequentiallyConsistent) }

    func raise(to value: Int) {
        number.store(value, ordering: .sequentiallyConsistent)
    }
}

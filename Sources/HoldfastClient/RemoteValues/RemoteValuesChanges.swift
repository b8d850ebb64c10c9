/// The changes of the values from the moment ``RemoteValueService/changes()`` was called. One who reads slowly gets
/// several changes as one, and misses none. Each call's result is for one reader.
public struct RemoteValuesChanges: AsyncSequence, Sendable {
    let signals: AsyncStream<Void>
    let start: RemoteValues
    let current: @Sendable () -> RemoteValues?

    public func makeAsyncIterator() -> Iterator {
        Iterator(signals: signals.makeAsyncIterator(), last: start, current: current)
    }

    public struct Iterator: AsyncIteratorProtocol {
        private var signals: AsyncStream<Void>.Iterator
        private var last: RemoteValues
        private let current: @Sendable () -> RemoteValues?

        init(signals: AsyncStream<Void>.Iterator, last: RemoteValues, current: @escaping @Sendable () -> RemoteValues?) {
            self.signals = signals
            self.last = last
            self.current = current
        }

        /// Waits for the next change; nil once the service is gone or the task is cancelled.
        public mutating func next() async -> RemoteValuesChange? {
            while await signals.next() != nil, let values = current() {
                defer { last = values }
                if let change = RemoteValuesChange(from: last, to: values) { return change }
            }
            return nil
        }
    }
}

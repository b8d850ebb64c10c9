#if canImport(Combine)
    public import Combine

    extension RemoteConfigService {
        /// Returns a publisher of the value of a key, which each subscriber gets at once and after each change, on an
        /// arbitrary thread. It completes when the service or the client ends. See ``remoteValues(for:as:)`` for an
        /// `AsyncSequence`.
        public func remoteValuePublisher<Value: RemoteValue>(
            for key: some RemoteKey, as type: Value.Type = Value.self
        ) -> AnyPublisher<Value, Never> {
            Deferred { [self] in
                let values = ValueSubject<Value>()
                let token = addListener(for: key, as: type, end: values.end, values.send)
                return values.subject.compactMap { $0 }
                    .handleEvents(receiveCompletion: { _ in token.cancel() }, receiveCancel: { token.cancel() })
            }
            .eraseToAnyPublisher()
        }

        /// ``remoteValuePublisher(for:as:)`` of a key that has its type.
        public func remoteValuePublisher<Value>(for key: TypedRemoteKey<Value>) -> AnyPublisher<Value, Never> {
            remoteValuePublisher(for: key, as: Value.self)
        }
    }

    /// The subject of one subscriber.
    private final class ValueSubject<Value>: @unchecked Sendable {
        // Safe: the listener sends from one thread at a time, and another thread may subscribe to a subject meanwhile.
        let subject = CurrentValueSubject<Value?, Never>(nil)

        @Sendable func send(_ value: Value) { subject.send(value) }

        @Sendable func end() { subject.send(completion: .finished) }
    }
#endif

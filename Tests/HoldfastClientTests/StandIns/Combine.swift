// What the library and the articles use of Combine, as its documentation declares it.

public protocol Publisher<Output, Failure> {
    associatedtype Output
    associatedtype Failure: Error
}

public enum Subscribers {
    public enum Completion<Failure: Error> {
        case finished
        case failure(Failure)
    }
}

public protocol Subscription {}

public final class PassthroughSubject<Output, Failure: Error>: Publisher {
    public init() {}

    public func send(_ input: Output) {}
}

public final class CurrentValueSubject<Output, Failure: Error>: Publisher {
    public init(_ value: Output) {}

    public func send(_ input: Output) {}

    public func send(completion: Subscribers.Completion<Failure>) {}
}

public struct AnyPublisher<Output, Failure: Error>: Publisher {}

public struct Deferred<DeferredPublisher: Publisher>: Publisher {
    public typealias Output = DeferredPublisher.Output
    public typealias Failure = DeferredPublisher.Failure

    public init(createPublisher: @escaping () -> DeferredPublisher) {}
}

public enum Publishers {
    public struct CompactMap<Upstream: Publisher, Output>: Publisher {
        public typealias Failure = Upstream.Failure
    }

    public struct HandleEvents<Upstream: Publisher>: Publisher {
        public typealias Output = Upstream.Output
        public typealias Failure = Upstream.Failure
    }
}

extension Publisher {
    public func compactMap<Mapped>(
        _ transform: @escaping (Output) -> Mapped?
    ) -> Publishers.CompactMap<Self, Mapped> { Publishers.CompactMap() }

    public func handleEvents(
        receiveSubscription: ((any Subscription) -> Void)? = nil, receiveOutput: ((Output) -> Void)? = nil,
        receiveCompletion: ((Subscribers.Completion<Failure>) -> Void)? = nil, receiveCancel: (() -> Void)? = nil
    ) -> Publishers.HandleEvents<Self> { Publishers.HandleEvents() }

    public func eraseToAnyPublisher() -> AnyPublisher<Output, Failure> { AnyPublisher() }
}

public protocol ObservableObject: AnyObject {
    associatedtype ObjectWillChangePublisher: Publisher = ObservableObjectPublisher
    where Self.ObjectWillChangePublisher.Failure == Never
    var objectWillChange: ObjectWillChangePublisher { get }
}

extension ObservableObject where ObjectWillChangePublisher == ObservableObjectPublisher {
    public var objectWillChange: ObservableObjectPublisher { ObservableObjectPublisher() }
}

public final class ObservableObjectPublisher: Publisher {
    public typealias Output = Void
    public typealias Failure = Never

    public init() {}

    public func send() {}
}

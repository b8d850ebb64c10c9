import Dispatch
import Storage
internal import Synchronization

/// Whether the server should be sent requests: its store answers and can be written, and it is not shutting down.
public final class Readiness: Sendable {
    private struct State {
        var isShuttingDown = false
        /// What the last look at the store found, and when it did.
        var lastResult: Result<Void, StorageError>?
        var lastLook = DispatchTime(uptimeNanoseconds: 0)
        var waiting: [@Sendable (String?) -> Void] = []
    }

    private let store: any ProfileStore
    private let state = Mutex(State())
    /// For how long one look at the store serves those who ask.
    private let freshness = DispatchTimeInterval.milliseconds(500)

    init(store: any ProfileStore) {
        self.store = store
    }

    /// From now on the server is not ready.
    public func shutDown() {
        state.withLock { $0.isShuttingDown = true }
    }

    /// - Parameter completion: called with what is wrong, `nil` when the server is ready.
    func check(_ completion: @escaping @Sendable (String?) -> Void) {
        enum Step {
            case answer(String?)
            case wait
            case look
        }
        let step = state.withLock { state -> Step in
            if state.isShuttingDown { return .answer("the server is shutting down") }
            if let result = state.lastResult, DispatchTime.now() < state.lastLook + freshness {
                return .answer(Self.reason(result))
            }
            state.waiting.append(completion)
            return state.waiting.count == 1 ? .look : .wait
        }
        switch step {
        case .answer(let reason): completion(reason)
        case .wait: break
        case .look: store.probe { [self] in looked($0) }
        }
    }

    private func looked(_ result: Result<Void, StorageError>) {
        let waiting = state.withLock { state in
            state.lastResult = result
            state.lastLook = .now()
            defer { state.waiting = [] }
            return state.waiting
        }
        for completion in waiting { completion(Self.reason(result)) }
    }

    private static func reason(_ result: Result<Void, StorageError>) -> String? {
        switch result {
        case .success: nil
        case .failure(.unavailable(let reason)): reason
        case .failure(.overloaded): "too many writes are waiting"
        case .failure(.closed): "the store is closed"
        case .failure(.tooManyAssignments): "the store refused a probe"
        }
    }
}

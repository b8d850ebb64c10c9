import Bucketing
import Dispatch
public import Storage
internal import Synchronization

/// Whether the server should be sent requests: its store answers and can be written, and it is not shutting down.
public final class Readiness: Sendable {
    private struct State {
        var isShuttingDown = false
        /// What the last look at the store found, and when it did.
        var lastResult: Result<Void, StorageError>?
        var lastLook = DispatchTime(uptimeNanoseconds: 0)
        var waiting: [@Sendable (String?) -> Void] = []
        /// How many looks have begun, and whether the last of them goes on.
        var looks: UInt64 = 0
        var isLooking = false
        /// Whether it has gone on for longer than ``patience``.
        var isLate = false
    }

    private let store: any Store
    private let state = Mutex(State())
    /// For how long one look at the store serves those who ask.
    private let freshness = DispatchTimeInterval.milliseconds(500)
    /// Seconds after which a store that says nothing is not ready.
    private let patience: Double

    public init(store: any Store, patience: Double = 5) {
        self.store = store
        self.patience = patience
    }

    /// From now on the server is not ready.
    public func shutDown() {
        state.withLock { $0.isShuttingDown = true }
    }

    /// - Parameter completion: called with what is wrong, `nil` when the server is ready.
    public func check(_ completion: @escaping @Sendable (String?) -> Void) {
        enum Step {
            case answer(String?)
            case wait
            case look(UInt64)
        }
        let step = state.withLock { state -> Step in
            if state.isShuttingDown { return .answer("the server is shutting down") }
            if let result = state.lastResult, state.isLate || DispatchTime.now() < state.lastLook + freshness {
                return .answer(reason(result))
            }
            state.waiting.append(completion)
            if state.isLooking { return .wait }
            state.isLooking = true
            state.looks += 1
            return .look(state.looks)
        }
        switch step {
        case .answer(let reason): completion(reason)
        case .wait: break
        case .look(let number): look(number)
        }
    }

    private func look(_ number: UInt64) {
        store.probe { [self] result in
            tell(result) { state in
                state.isLooking = false
                state.isLate = false
                return true
            }
        }
        DispatchQueue.global().asyncAfter(deadline: .now() + patience) { [self] in
            tell(.failure(.unavailable(reason: "the store has not answered for \(patience) seconds"))) { state in
                state.isLate = state.isLooking && state.looks == number
                return state.isLate
            }
        }
    }

    /// Tells those who wait, if the state is still such that they are to be told.
    private func tell(_ result: Result<Void, StorageError>, if isNews: (inout State) -> Bool) {
        let waiting = state.withLock { state -> [@Sendable (String?) -> Void] in
            guard isNews(&state) else { return [] }
            state.lastResult = result
            state.lastLook = .now()
            defer { state.waiting = [] }
            return state.waiting
        }
        for completion in waiting { completion(reason(result)) }
    }

    /// A write may have failed since the look, or where a look did not.
    private func reason(_ result: Result<Void, StorageError>) -> String? {
        switch result {
        case .success: store.writeFailure?.description
        case .failure(let error): error.description
        }
    }
}

import Synchronization

/// The values of a service, and those who follow them.
final class CurrentRemoteValues: Sendable {
    private struct State {
        var values: RemoteValues
        var lastTicket = 0
        var appliedTicket = 0
    }

    private let state: Mutex<State>
    private let signals = Broadcast<Void>()

    init(_ values: RemoteValues) {
        state = Mutex(State(values: values))
    }

    var values: RemoteValues {
        state.withLock(\.values)
    }

    /// A number that tells when something was asked for, so that an answer that comes late does not undo a later one.
    func drawTicket() -> Int {
        state.withLock { state in
            state.lastTicket += 1
            return state.lastTicket
        }
    }

    func replaceFetched(_ fetched: [RemoteKey: FetchedValue], ticket: Int) {
        let isNews = state.withLock { state in
            guard ticket > state.appliedTicket else { return false }
            state.appliedTicket = ticket
            state.values.fetched = fetched
            return true
        }
        if isNews { signals.send(()) }
    }

    func change(_ change: (inout RemoteValues) -> Void) {
        state.withLock { change(&$0.values) }
        signals.send(())
    }

    func changes() -> RemoteValuesChanges {
        let signals = signals.stream()
        return RemoteValuesChanges(signals: signals, start: values) { [weak self] in self?.values }
    }
}

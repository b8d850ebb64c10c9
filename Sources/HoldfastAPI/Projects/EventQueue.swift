import Dispatch
public import Storage
internal import Synchronization

/// Hands exposures to the store without making decisions wait. What the store has no room for is counted and dropped:
/// nobody was promised an exposure. A goal that was acknowledged goes another way, see ``track(_:_:)``.
public final class EventQueue: Sendable {
    private struct State {
        var waiting: [EventRecord] = []
        var isWriting = false
        var stored: UInt64 = 0
        var dropped: UInt64 = 0
    }

    private let store: any EventStore
    private let capacity: Int
    private let state = Mutex(State())
    /// Entered while events are on their way to the store.
    private let writing = DispatchGroup()
    /// Events of one transaction.
    private static let batch = 512

    public init(store: any EventStore, capacity: Int = 65_536) {
        self.store = store
        self.capacity = capacity
    }

    /// Stores events some time soon.
    func add(_ events: [EventRecord]) {
        guard !events.isEmpty else { return }
        let mustWrite = state.withLock { state in
            let room = max(0, capacity - state.waiting.count)
            state.waiting += events.prefix(room)
            state.dropped &+= UInt64(max(0, events.count - room))
            defer { state.isWriting = true }
            return !state.isWriting
        }
        guard mustWrite else { return }
        writing.enter()
        writeNext()
    }

    /// Blocks until what was added is stored.
    public func waitUntilStored() {
        writing.wait()
    }

    /// Stores an event before it is acknowledged.
    func track(_ event: EventRecord, _ completion: @escaping @Sendable (Result<Void, StorageError>) -> Void) {
        store.append([event]) { [self] result in
            if case .success = result { state.withLock { $0.stored &+= 1 } }
            completion(result)
        }
    }

    private func writeNext() {
        let events = state.withLock { state -> [EventRecord] in
            let events = Array(state.waiting.prefix(Self.batch))
            state.waiting.removeFirst(events.count)
            state.isWriting = !events.isEmpty
            return events
        }
        guard !events.isEmpty else { return writing.leave() }
        store.append(events) { [self] result in
            state.withLock { state in
                if case .success = result {
                    state.stored &+= UInt64(events.count)
                } else {
                    state.dropped &+= UInt64(events.count)
                }
            }
            writeNext()
        }
    }

    var statistics: (waiting: Int, stored: UInt64, dropped: UInt64) {
        state.withLock { ($0.waiting.count, $0.stored, $0.dropped) }
    }
}

import Dispatch
import Foundation
import Synchronization

/// What clients do to servers at the same time, from its beginning to its end; they count here what comes of it.
final class Load: Sendable {
    struct Counts: Sendable {
        /// Operations that were answered, and those of them that may have changed something.
        var answered = 0
        var acknowledged = 0
        /// Operations that the server said it could not do.
        var refused = 0
        /// Connections that ended before an answer, and how many of these with a reset.
        var cut = 0
        var reset = 0
        /// What no rule allows.
        var wrong: [String] = []

        static func += (total: inout Counts, more: Counts) {
            total.answered += more.answered
            total.acknowledged += more.acknowledged
            total.refused += more.refused
            total.cut += more.cut
            total.reset += more.reset
            total.wrong += more.wrong
        }
    }

    private let state = Mutex(Counts())
    private let over = Atomic(false)
    private let clients = DispatchGroup()

    var counts: Counts { state.withLock { $0 } }
    var isOver: Bool { over.load(ordering: .acquiring) }

    /// Starts a thread for each client.
    init(of clients: [LoadClient], on ports: [UInt16]) {
        for client in clients {
            self.clients.enter()
            Thread.detachNewThread { [self] in
                client.work(on: ports, in: self)
                self.clients.leave()
            }
        }
    }

    func count(_ change: (inout Counts) -> Void) {
        state.withLock { change(&$0) }
    }

    /// Blocks until the counts are as wanted, or the time is over.
    @discardableResult
    func wait(atMost time: Duration = .seconds(30), until isEnough: (Counts) -> Bool) -> Bool {
        let deadline = ContinuousClock.now + time
        while .now < deadline {
            if isEnough(counts) { return true }
            usleep(500)
        }
        return false
    }

    /// Blocks until all clients have done what they had to do.
    func waitForEnd() {
        clients.wait()
    }

    /// Blocks until all clients have stopped: each ends what it has begun, and begins nothing more.
    func end() {
        over.store(true, ordering: .releasing)
        clients.wait()
    }
}

import Dispatch
import Foundation

/// What clients do to servers at the same time, from its beginning to its end; they count here what comes of it.
final class Load: @unchecked Sendable {
    // Safe: `state` and `over` are only used with the condition's lock held.

    struct Counts: Sendable {
        /// Operations that were answered, and those of them that may have changed something.
        var answered = 0
        var acknowledged = 0
        /// Operations that the server said it could not do.
        var refused = 0
        /// Connections that ended before a response, and how many of these with a reset.
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

    private var state = Counts()
    private var over = false
    private let condition = NSCondition()
    private let clients = DispatchGroup()

    var counts: Counts { condition.withLock { state } }
    var isOver: Bool { condition.withLock { over } }

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
        condition.withLock {
            change(&state)
            condition.broadcast()
        }
    }

    /// Blocks until the counts are as wanted, or the time is over.
    ///
    /// - Returns: whether they are.
    @discardableResult
    func wait(atMost seconds: TimeInterval = 60, until isEnough: (Counts) -> Bool) -> Bool {
        let deadline = ContinuousClock.now + .seconds(seconds)
        return condition.withLock {
            while !isEnough(state) {
                guard .now < deadline else { return false }
                _ = condition.wait(until: Date(timeIntervalSinceNow: 1))
            }
            return true
        }
    }

    /// Blocks until all clients have done what they had to do.
    func waitForEnd() {
        clients.wait()
    }

    /// Blocks until all clients have stopped: each ends what it has begun, and begins nothing more.
    func end() {
        condition.withLock { over = true }
        clients.wait()
    }
}

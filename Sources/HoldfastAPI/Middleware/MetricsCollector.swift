import HTTPServer
internal import Synchronization

/// Asks the event loops for their figures.
final class MetricsCollector: Sendable {
    private let server = Mutex<HTTPServer?>(nil)

    func observe(_ server: HTTPServer) {
        self.server.withLock { $0 = server }
    }

    /// - Parameter completion: called on the thread of one of the loops.
    func collect(_ completion: @escaping @Sendable ([LoopSnapshot]) -> Void) {
        guard let server = server.withLock({ $0 }) else { return completion([]) }
        server.collect { application, connections in
            (application as? HoldfastApplication)?.snapshot(connections)
        } completion: { snapshots in
            completion(snapshots.compactMap(\.self))
        }
    }
}

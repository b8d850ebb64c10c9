import Dispatch
import Foundation
import Synchronization

/// Signals as events on a queue, where anything may be done, unlike in a signal handler.
final class Signals {
    private let queue = DispatchQueue(label: "signals")
    private let termination = Termination()
    private var sources: [any DispatchSourceSignal] = []

    init() {
        // A peer that goes away is seen by the call that writes to it.
        signal(SIGPIPE, SIG_IGN)
        // A file that may not grow is seen by the write to it, as a full disk is.
        signal(SIGXFSZ, SIG_IGN)
        // Ends nothing, also while there is no token file to read again yet.
        signal(SIGHUP, SIG_IGN)
        observe(SIGTERM) { [termination] in termination.asked(by: "SIGTERM") }
        observe(SIGINT) { [termination] in termination.asked(by: "SIGINT") }
    }

    func onHangUp(_ handler: @escaping @Sendable () -> Void) {
        observe(SIGHUP, handler)
    }

    /// Blocks until SIGTERM or SIGINT comes. A second one of them ends the process at once.
    ///
    /// - Returns: the name of the signal.
    func waitForTermination() -> String {
        termination.wait()
    }

    private func observe(_ number: Int32, _ handler: @escaping @Sendable () -> Void) {
        signal(number, SIG_IGN)
        let source = DispatchSource.makeSignalSource(signal: number, queue: queue)
        source.setEventHandler(handler: handler)
        source.resume()
        sources.append(source)
    }
}

private final class Termination: Sendable {
    private let first = Mutex<String?>(nil)
    private let semaphore = DispatchSemaphore(value: 0)

    func asked(by name: String) {
        let isFirst = first.withLock { first in
            defer { first = first ?? name }
            return first == nil
        }
        guard isFirst else { exit(1) }
        semaphore.signal()
    }

    func wait() -> String {
        semaphore.wait()
        return first.withLock { $0 } ?? ""
    }
}

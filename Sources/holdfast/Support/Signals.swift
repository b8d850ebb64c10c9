import Dispatch
import Foundation
import Synchronization

/// Signals as events on a queue, where anything may be done, unlike in a signal handler.
final class Signals {
    private let queue = DispatchQueue(label: "signals")
    private let termination: Termination
    private var sources: [any DispatchSourceSignal] = []
    private let delay: Double

    /// - Parameter delay: seconds that ``waitForDelay()`` takes.
    init(delay: Double) {
        self.delay = delay
        termination = Termination(hasDelay: delay > 0)
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

    /// Blocks until SIGTERM or SIGINT comes. A further one of them ends the delay, or else the process at once.
    ///
    /// - Returns: the name of the signal.
    func waitForTermination() -> String {
        termination.wait()
    }

    /// Blocks for the delay, or until another signal comes.
    func waitForDelay() {
        if delay > 0 { termination.waitForDelay(delay) }
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
    private struct State {
        var first: String?
        /// Whether a signal ends the delay that has begun or is about to.
        var mayEndDelay: Bool
    }

    private let state: Mutex<State>
    private let semaphore = DispatchSemaphore(value: 0)

    init(hasDelay: Bool) {
        state = Mutex(State(mayEndDelay: hasDelay))
    }

    func asked(by name: String) {
        let isExpected = state.withLock { state in
            guard state.first != nil else {
                state.first = name
                return true
            }
            defer { state.mayEndDelay = false }
            return state.mayEndDelay
        }
        guard isExpected else { exit(1) }
        semaphore.signal()
    }

    func wait() -> String {
        semaphore.wait()
        return state.withLock { $0.first } ?? ""
    }

    func waitForDelay(_ seconds: Double) {
        _ = semaphore.wait(timeout: .now() + seconds)
        state.withLock { $0.mayEndDelay = false }
    }
}

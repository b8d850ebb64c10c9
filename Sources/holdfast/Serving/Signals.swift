import Dispatch
import Glibc
import Synchronization

/// Delivers signals on a queue, where all code is allowed, unlike in a signal handler.
final class Signals {
    private let queue = DispatchQueue(label: "signals")
    private let termination: Termination
    private var sources: [any DispatchSourceSignal] = []
    /// The delay of ``waitForDelay()`` in seconds; 0 for none.
    private let delay: Double

    /// - Parameter delay: the delay of ``waitForDelay()`` in seconds.
    init(delay: Double) {
        self.delay = delay
        termination = Termination(hasDelay: delay > 0)
        // Writing to a closed connection returns an error instead.
        signal(SIGPIPE, SIG_IGN)
        // Writing to a file at its size limit returns an error instead, as with a full disk.
        signal(SIGXFSZ, SIG_IGN)
        // SIGHUP must not end the process before ``onHangUp(_:)`` is called.
        signal(SIGHUP, SIG_IGN)
        observe(SIGTERM) { [termination] in termination.receive("SIGTERM") }
        observe(SIGINT) { [termination] in termination.receive("SIGINT") }
    }

    /// Calls a handler at each SIGHUP.
    func onHangUp(_ handler: @escaping @Sendable () -> Void) {
        observe(SIGHUP, handler)
    }

    /// Blocks until SIGTERM or SIGINT. A second signal ends the delay of the shutdown. If there is no delay, or if the
    /// delay is over, the signal ends the process at once.
    ///
    /// - Returns: the name of the signal.
    func waitForTermination() -> String {
        termination.wait()
    }

    /// Blocks for the delay, or until a second signal.
    func waitForDelay() {
        if delay > 0 { termination.waitForDelay(delay) }
    }

    /// Calls a handler on the queue at each signal of a number.
    private func observe(_ number: Int32, _ handler: @escaping @Sendable () -> Void) {
        signal(number, SIG_IGN)
        let source = DispatchSource.makeSignalSource(signal: number, queue: queue)
        source.setEventHandler(handler: handler)
        source.resume()
        sources.append(source)
    }
}

/// The requests to end the process. The first signal begins the shutdown, which may begin with a delay. The next signal
/// ends the delay. A signal that finds no delay to end ends the process.
private final class Termination: Sendable {
    private struct State {
        /// The name of the first signal.
        var first: String?
        /// Whether the next signal ends the delay instead of the process.
        var mayEndDelay: Bool
    }

    private let state: Mutex<State>
    /// Signalled for the first signal, and for the end of the delay.
    private let semaphore = DispatchSemaphore(value: 0)

    init(hasDelay: Bool) {
        state = Mutex(State(mayEndDelay: hasDelay))
    }

    /// Notes a signal.
    func receive(_ name: String) {
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

    /// Blocks until the first signal, and returns its name.
    func wait() -> String {
        semaphore.wait()
        return state.withLock { $0.first } ?? ""
    }

    /// Blocks for a time, or until the second signal.
    func waitForDelay(_ seconds: Double) {
        // A time-out of the semaphore would depend on the wall clock, which may be set.
        DispatchQueue(label: "delay").asyncAfter(deadline: .now() + seconds) { [semaphore] in semaphore.signal() }
        semaphore.wait()
        state.withLock { $0.mayEndDelay = false }
    }
}

import Dispatch
import Glibc
import HTTPServer
import HoldfastAPI
import Logging
import Storage
import Synchronization

/// Reports the state of the server to systemd (sd_notify(3)), if systemd asks for it with `NOTIFY_SOCKET`.
///
/// It reports that the server is ready once every event loop has run a job. After that, it notifies the watchdog each
/// time every event loop has run another job: when a loop hangs, the notifications stop, and systemd restarts the
/// server.
final class ServiceNotifier: Sendable {
    private let socket: NotifySocket
    private let logger: Logger
    /// Half of the watchdog's timeout; `nil` without a watchdog.
    private let interval: DispatchTimeInterval?
    private let queue = DispatchQueue(label: "service-notifier")
    private let state = Mutex(State())

    private struct State {
        var isServing = false
        var isStopping = false
        /// Whether a loop has not yet run the job of the last check.
        var isWaitingForLoops = false
        var status = ""
    }

    /// - Returns: `nil` if systemd does not request reports.
    /// - Throws: ``Failure`` if the variables of systemd are invalid.
    init?(environment: [String: String], logger: Logger) throws {
        guard let path = environment["NOTIFY_SOCKET"], !path.isEmpty else { return nil }
        socket = try NotifySocket(path)
        self.logger = logger
        interval = try Self.watchdogInterval(environment)
    }

    /// Returns half of the watchdog's timeout; `nil` if there is no watchdog for this process.
    private static func watchdogInterval(_ environment: [String: String]) throws -> DispatchTimeInterval? {
        guard let text = environment["WATCHDOG_USEC"], !text.isEmpty else { return nil }
        // The variable is for another process, such as a wrapper of this one.
        if let process = environment["WATCHDOG_PID"], !process.isEmpty, Int32(process) != getpid() { return nil }
        guard let microseconds = Int(text), microseconds > 1 else {
            throw Failure("WATCHDOG_USEC must be a number of microseconds; got '\(text)'")
        }
        return .microseconds(microseconds / 2)
    }

    /// Reports that the server is ready as soon as all event loops run; then notifies the watchdog regularly.
    func serve(_ server: HTTPServer, _ store: any Store) {
        state.withLock { $0.status = "serving at http://\(server.address)" }
        Task {
            guard await checkLoops(of: server) else { return }
            let status = state.withLock { state in
                state.isServing = true
                return state.status
            }
            send("READY=1", "STATUS=\(status)")
        }
        if let interval { feedWatchdog(every: interval, server, store) }
    }

    /// Notifies the watchdog at an interval until the process ends. The notifications go on during the shutdown,
    /// because a shutdown may hang as well.
    private func feedWatchdog(every interval: DispatchTimeInterval, _ server: HTTPServer, _ store: any Store) {
        queue.asyncAfter(deadline: .now() + interval) { [self] in
            Task { if await checkLoops(of: server) { send("WATCHDOG=1", "STATUS=\(status(of: store))") } }
            feedWatchdog(every: interval, server, store)
        }
    }

    /// Waits until each event loop has run a job.
    ///
    /// - Returns: `false` at once while another check is in progress.
    private func checkLoops(of server: HTTPServer) async -> Bool {
        let isWaiting = state.withLock { state in
            defer { state.isWaitingForLoops = true }
            return state.isWaitingForLoops
        }
        guard !isWaiting else { return false }
        // The job does nothing: that each loop runs it shows that no loop hangs.
        _ = await server.collect { _, _ in }
        state.withLock { $0.isWaitingForLoops = false }
        return true
    }

    /// Returns the status, with the failure of the store if writes fail.
    private func status(of store: any Store) -> String {
        let (status, isStopping) = state.withLock { ($0.status, $0.isStopping) }
        guard !isStopping, let failure = store.writeFailure else { return status }
        return "\(status), but writes fail: \(failure)"
    }

    /// Reports a reload of the tokens: its begin and its end.
    ///
    /// - Parameter reload: reloads the tokens. It returns a problem to show as the status, or `nil`.
    func reloading(_ reload: () -> String?) {
        // "Ready again" must not be reported before the server is ready.
        let isServing = state.withLock { $0.isServing && !$0.isStopping }
        guard isServing else {
            _ = reload()
            return
        }
        var time = timespec()
        clock_gettime(CLOCK_MONOTONIC, &time)
        // systemd 253 and later require the time.
        send("RELOADING=1", "MONOTONIC_USEC=\(time.tv_sec * 1_000_000 + time.tv_nsec / 1_000)")
        let problem = reload()
        let status = state.withLock { $0.status }
        send("READY=1", "STATUS=\(problem ?? status)")
    }

    /// Reports that the server shuts down.
    ///
    /// - Parameter seconds: the maximum duration of the shutdown, which systemd then allows.
    func stopping(within seconds: Double) {
        state.withLock { state in
            state.isStopping = true
            state.status = "shutting down"
        }
        // Bounded, so that the product does not overflow.
        let microseconds = Int64(min(max(seconds, 0), 1e9) * 1e6)
        send("STOPPING=1", "STATUS=shutting down", "EXTEND_TIMEOUT_USEC=\(microseconds)")
    }

    /// Sends lines `NAME=VALUE`, in which line feeds are replaced. A failure is only logged.
    private func send(_ lines: String...) {
        let text = lines.map { $0.split(whereSeparator: \.isNewline).joined(separator: " ") }.joined(separator: "\n")
        if let problem = socket.send(text) {
            logger.warning("systemd was not notified", metadata: ["error": "\(problem)"])
        }
    }
}

/// The datagram socket on which systemd listens: a path, or an abstract name that begins with `@`.
private struct NotifySocket: Sendable {
    private let descriptor: Int32
    /// A `sockaddr_un`, up to the end of the name.
    private let address: [UInt8]

    /// - Throws: ``Failure`` if the path is invalid, or if there is no free descriptor.
    init(_ path: String) throws {
        var name = Array(path.utf8)
        let longest = MemoryLayout.size(ofValue: sockaddr_un().sun_path) - 1
        guard let first = name.first, first == UInt8(ascii: "/") || first == UInt8(ascii: "@"), name.count <= longest
        else {
            throw Failure(
                "NOTIFY_SOCKET must be an absolute path, or '@' and a name, of at most \(longest) bytes; got '\(path)'")
        }
        if first == UInt8(ascii: "@") { name[0] = 0 }
        address = withUnsafeBytes(of: sa_family_t(AF_UNIX)) { Array($0) } + name
        descriptor = socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        guard descriptor >= 0 else { throw Failure("socket: \(String(cString: strerror(errno)))") }
        // The timeout prevents a full queue of systemd from stopping the server.
        var limit = timeval(tv_sec: 2, tv_usec: 0)
        setsockopt(descriptor, SOL_SOCKET, SO_SNDTIMEO, &limit, socklen_t(MemoryLayout<timeval>.size))
    }

    /// - Returns: a description of the failure; `nil` if the text was sent.
    func send(_ text: String) -> String? {
        let bytes = Array(text.utf8)
        let sent = address.withUnsafeBytes { address in
            sendto(
                descriptor, bytes, bytes.count, Int32(MSG_NOSIGNAL),
                address.assumingMemoryBound(to: sockaddr.self).baseAddress, socklen_t(address.count))
        }
        return sent == bytes.count ? nil : String(cString: strerror(errno))
    }
}

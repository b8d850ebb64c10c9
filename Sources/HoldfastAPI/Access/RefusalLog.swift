import Definitions
import Dispatch
import HTTPServer
import HoldfastCore
import Logging
internal import Synchronization

/// Logs requests that ``AccessGate`` refused: at most 10 lines per second, because peers decide how many refusals there
/// are. Further refusals are only counted, and the count is logged a second later.
public final class RefusalLog: Sendable {
    /// The counts of the current second.
    private struct State {
        /// The end of the second in which ``lines`` are counted.
        var end = ContinuousClock.now
        var lines = 0
        /// The number of refusals that were not logged since the last ``RefusalLog/flush()``.
        var leftOut = 0
    }

    private static let maximumLinesPerSecond = 10
    /// The longest path that a line quotes, in bytes.
    private static let longestPath = 256

    private let logger: Logger
    private let access: AccessControl
    private let proxies: TrustedProxies
    private let state = Mutex(State())
    private let total = Atomic<UInt64>(0)

    /// The number of refusals since the process started.
    var count: UInt64 { total.load(ordering: .relaxed) }

    init(_ logger: Logger, access: AccessControl, proxies: TrustedProxies) {
        self.logger = logger
        self.access = access
        self.proxies = proxies
    }

    /// Logs or counts a refusal.
    ///
    /// - Parameter path: the path of the request, or of one operation of a batch.
    func record(_ refusal: AccessRefusal, path: String, method: Method, of origin: RequestOrigin) {
        total.add(1, ordering: .relaxed)
        guard takeLine() else { return }
        var metadata: Logger.Metadata = [
            "status": .stringConvertible(refusal.problem.status.code), "reason": "\(refusal.problem.detail)",
            "method": "\(method.name)", "path": "\(access.loggable(path).shortened(to: Self.longestPath))",
            "request_id": "\(access.loggable(origin.id.description))",
        ]
        metadata.addClient(of: origin.peer, forwardedFor: origin.forwardedFor, proxies)
        if let name = refusal.token?.name { metadata["token"] = "\(name)" }
        logger.notice("a request without permission was refused", metadata: metadata)
    }

    /// Logs how many refusals were left out, if any.
    public func flush() {
        let leftOut = state.withLock { state in
            defer { state.leftOut = 0 }
            return state.leftOut
        }
        guard leftOut > 0 else { return }
        logger.notice(
            "further requests without permission were refused", metadata: ["left_out": .stringConvertible(leftOut)])
    }

    /// Takes one of the log lines that may be written in the current second. The first refusal without a line schedules
    /// a ``flush()``.
    ///
    /// - Returns: whether a line was left.
    private func takeLine() -> Bool {
        let (mayWrite, isFirstLeftOut) = state.withLock { state in
            let now = ContinuousClock.now
            if now >= state.end {
                state.end = now + .seconds(1)
                state.lines = 0
            }
            state.lines += 1
            if state.lines <= Self.maximumLinesPerSecond { return (true, false) }
            state.leftOut += 1
            return (false, state.leftOut == 1)
        }
        if isFirstLeftOut { DispatchQueue.global().asyncAfter(deadline: .now() + 1) { [weak self] in self?.flush() } }
        return mayWrite
    }
}

/// Where a request comes from, for the log.
struct RequestOrigin: Sendable {
    let id: RequestID
    let peer: IPAddress
    let forwardedFor: String?

    init(_ request: borrowing Request) {
        id = request.id
        peer = request.peer
        forwardedFor = request.field("x-forwarded-for")
    }
}

extension Logger.Metadata {
    /// Adds the client's address, and the last proxy's if the request came through one.
    mutating func addClient(of peer: IPAddress, forwardedFor: String?, _ proxies: TrustedProxies) {
        let client = proxies.client(of: peer, forwardedFor: forwardedFor)
        self["client"] = "\(client)"
        if client != peer { self["proxy"] = "\(peer)" }
    }
}

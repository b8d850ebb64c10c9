import Foundation

#if canImport(FoundationNetworking)
    import FoundationNetworking
#endif

/// A transport over `URLSession`, without cache and cookies.
public final class URLSessionTransport: HoldfastTransport {
    private let session: URLSession
    private let exchanges: Exchanges

    public init() {
        let configuration = URLSessionConfiguration.ephemeral
        configuration.urlCache = nil
        configuration.requestCachePolicy = .reloadIgnoringLocalCacheData
        configuration.httpCookieStorage = nil
        configuration.httpShouldSetCookies = false
        exchanges = Exchanges()
        session = URLSession(configuration: configuration, delegate: exchanges, delegateQueue: nil)
    }

    deinit {
        session.invalidateAndCancel()
    }

    public func open(_ request: TransportRequest) async throws(HoldfastError) -> TransportResponse {
        var urlRequest = URLRequest(url: request.url, timeoutInterval: request.timeout.inSeconds)
        urlRequest.httpMethod = request.method
        urlRequest.httpBody = request.body
        for (name, value) in request.fields { urlRequest.setValue(value, forHTTPHeaderField: name) }
        guard let exchange = exchanges.add(urlRequest, of: session, maximumBytes: request.maximumBytes) else {
            throw .destroyed
        }
        do {
            return try await withTaskCancellationHandler {
                try await withCheckedThrowingContinuation { head in
                    exchange.begin(head)
                    exchange.task.resume()
                }
            } onCancel: {
                exchange.task.cancel()
            }
        } catch {
            throw Task.isCancelled ? .cancelled : error as? HoldfastError ?? .unreachable("\(error)")
        }
    }

    public func close() {
        exchanges.close()
        session.invalidateAndCancel()
    }
}

/// The requests in progress, by task identifier. It is the delegate of the session, and passes events to each request's
/// ``Exchange``.
private final class Exchanges: NSObject, URLSessionDataDelegate, Sendable {
    private struct State {
        var open: [Int: Exchange] = [:]
        var isClosed = false
    }

    private let state = Locked(State())

    /// Makes a task, unless the session is closed: a task of an invalidated session would end the process. The task is
    /// registered before it can be cancelled, so that its end is not missed.
    ///
    /// - Returns: `nil` after ``close()``.
    func add(_ request: URLRequest, of session: URLSession, maximumBytes: Int?) -> Exchange? {
        state.withLock { state in
            guard !state.isClosed else { return nil }
            let exchange = Exchange(task: session.dataTask(with: request), maximumBytes: maximumBytes)
            state.open[exchange.task.taskIdentifier] = exchange
            return exchange
        }
    }

    /// Ends all requests, and refuses further ones.
    func close() {
        let open = state.withLock { state in
            defer { state.open = [:] }
            state.isClosed = true
            return state.open
        }
        for exchange in open.values { exchange.ended(.destroyed) }
    }

    func urlSession(
        _ session: URLSession, dataTask: URLSessionDataTask, didReceive response: URLResponse,
        completionHandler: @escaping @Sendable (URLSession.ResponseDisposition) -> Void
    ) {
        state.withLock { $0.open[dataTask.taskIdentifier] }?.received(response)
        completionHandler(.allow)
    }

    func urlSession(_ session: URLSession, dataTask: URLSessionDataTask, didReceive data: Data) {
        state.withLock { $0.open[dataTask.taskIdentifier] }?.received(data)
    }

    func urlSession(_ session: URLSession, task: URLSessionTask, didCompleteWithError error: (any Error)?) {
        let exchange = state.withLock { $0.open.removeValue(forKey: task.taskIdentifier) }
        exchange?.ended(error.map(Self.failure))
    }

    /// Redirects are not followed: Holdfast never sends any.
    func urlSession(
        _ session: URLSession, task: URLSessionTask, willPerformHTTPRedirection response: HTTPURLResponse,
        newRequest request: URLRequest, completionHandler: @escaping @Sendable (URLRequest?) -> Void
    ) {
        completionHandler(nil)
    }

    private static func failure(_ error: any Error) -> HoldfastError {
        switch (error as? URLError)?.code {
        case .timedOut: .timedOut
        case .cancelled: .cancelled
        default: .unreachable(error.localizedDescription)
        }
    }
}

/// A request in progress: first its caller waits for the head of the response, then for the pieces of the body.
private final class Exchange: Sendable {
    private struct State {
        /// The caller that waits for the head; `nil` before ``begin(_:)``, and once the caller has the head.
        var head: CheckedContinuation<TransportResponse, any Error>?
        /// The stream of the body, which the caller reads; `nil` before the head has arrived, and after the end.
        var body: AsyncThrowingStream<Data, any Error>.Continuation?
        /// The number of bytes of the body so far.
        var bytes = 0
        /// The failure of a request that has ended before ``begin(_:)``.
        var earlyFailure: HoldfastError?
        var hasBegun = false
    }

    let task: URLSessionDataTask
    private let maximumBytes: Int?
    private let state = Locked(State())

    init(task: URLSessionDataTask, maximumBytes: Int?) {
        self.task = task
        self.maximumBytes = maximumBytes
    }

    /// Waits for the head of the response.
    ///
    /// - Parameter head: the caller, which is resumed with the response or a failure.
    func begin(_ head: CheckedContinuation<TransportResponse, any Error>) {
        let failure = state.withLock { state in
            state.hasBegun = true
            if state.earlyFailure == nil { state.head = head }
            return state.earlyFailure
        }
        if let failure { head.resume(throwing: failure) }
    }

    /// Passes the head of the response to the caller.
    func received(_ response: URLResponse) {
        guard let response = response as? HTTPURLResponse else { return }
        var fields: [String: String] = [:]
        for (name, value) in response.allHeaderFields {
            if let name = name as? String, let value = value as? String { fields[name.lowercased()] = value }
        }
        let (body, continuation) = AsyncThrowingStream<Data, any Error>.makeStream()
        continuation.onTermination = { [task] _ in task.cancel() }
        let head = state.withLock { state in
            state.body = continuation
            defer { state.head = nil }
            return state.head
        }
        head?.resume(returning: TransportResponse(status: response.statusCode, fields: fields, body: body))
    }

    /// Passes a piece of the body to the caller, unless the body is too long.
    func received(_ data: Data) {
        let (body, isTooLong) = state.withLock { state in
            state.bytes += data.count
            return (state.body, state.bytes > maximumBytes ?? .max)
        }
        if isTooLong {
            body?.finish(
                throwing: HoldfastError.invalidResponse("the response is longer than \(maximumBytes ?? 0) bytes"))
        } else {
            body?.yield(data)
        }
    }

    /// Ends the request.
    ///
    /// - Parameter error: `nil` after a complete response.
    func ended(_ error: HoldfastError?) {
        let failure = error ?? .unreachable("no response")
        let (head, body) = state.withLock { state in
            defer {
                state.head = nil
                state.body = nil
            }
            if !state.hasBegun { state.earlyFailure = failure }
            return (state.head, state.body)
        }
        head?.resume(throwing: failure)
        if let error { body?.finish(throwing: error) } else { body?.finish() }
    }
}

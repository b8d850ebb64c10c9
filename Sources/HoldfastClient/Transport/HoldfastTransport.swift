public import Foundation

/// Sends HTTP requests. ``URLSessionTransport`` is the default.
public protocol HoldfastTransport: Sendable {
    /// Sends a request and returns once the response head has arrived.
    ///
    /// - Throws: ``HoldfastError/unreachable(_:)``, ``HoldfastError/timedOut``, ``HoldfastError/cancelled``.
    func open(_ request: TransportRequest) async throws(HoldfastError) -> TransportResponse

    /// Cancels all requests in progress.
    func close()
}

/// An HTTP request.
public struct TransportRequest: Sendable {
    public var method: String
    public var url: URL
    /// Header fields, values by name.
    public var fields: [String: String] = [:]
    /// The body; `nil` for a request without one.
    public var body: Data?
    /// Time-out between two pieces of data.
    public var timeout: Duration
    /// Maximum size of the response body in bytes; a longer response is cancelled. `nil` for an endless stream.
    public var maximumBytes: Int?

    /// - Parameters:
    ///   - timeout: the time-out between two pieces of data.
    ///   - maximumBytes: the maximum size of the response body, by default 16 MiB; `nil` for an endless stream.
    public init(method: String, url: URL, timeout: Duration, maximumBytes: Int? = 16 * 1024 * 1024) {
        self.method = method
        self.url = url
        self.timeout = timeout
        self.maximumBytes = maximumBytes
    }
}

/// An HTTP response with a streamed body.
public struct TransportResponse: Sendable {
    public var status: Int
    /// Header fields, names in lower case.
    public var fields: [String: String]
    /// Fails with ``HoldfastError``. The request is cancelled when the stream is abandoned.
    public var body: AsyncThrowingStream<Data, any Error>

    public init(status: Int, fields: [String: String] = [:], body: AsyncThrowingStream<Data, any Error>) {
        self.status = status
        self.fields = fields
        self.body = body
    }

    /// Returns the whole body.
    func collected() async throws(HoldfastError) -> Data {
        var all = Data()
        do {
            for try await piece in body { all += piece }
        } catch {
            throw error as? HoldfastError ?? .unreachable("\(error)")
        }
        if Task.isCancelled { throw .cancelled }
        return all
    }
}

public import Foundation

/// Carries requests to the server. ``URLSessionTransport`` is what a client uses unless it is given another.
public protocol HoldfastTransport: Sendable {
    /// Sends a request, and returns when the head of its answer is there.
    ///
    /// - Throws: ``HoldfastError/unreachable(_:)``, ``HoldfastError/timedOut``, ``HoldfastError/cancelled``.
    func open(_ request: TransportRequest) async throws(HoldfastError) -> TransportAnswer

    /// Breaks off what is under way.
    func close()
}

/// A request as it is sent.
public struct TransportRequest: Sendable {
    public var method: String
    public var url: URL
    public var fields: [String: String] = [:]
    public var body: Data?
    /// How long the server may be silent.
    public var timeout: Duration
    /// Bytes of an answer; a longer one is broken off. `nil` for one without end.
    public var maximumBytes: Int?

    public init(method: String, url: URL, timeout: Duration, maximumBytes: Int? = 16 * 1024 * 1024) {
        self.method = method
        self.url = url
        self.timeout = timeout
        self.maximumBytes = maximumBytes
    }
}

/// An answer whose body comes in pieces.
public struct TransportAnswer: Sendable {
    public var status: Int
    /// Names in lower case.
    public var fields: [String: String]
    /// Fails with ``HoldfastError``. When nobody reads it any more the request is broken off.
    public var body: AsyncThrowingStream<Data, any Error>

    public init(status: Int, fields: [String: String] = [:], body: AsyncThrowingStream<Data, any Error>) {
        self.status = status
        self.fields = fields
        self.body = body
    }

    /// The whole body.
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

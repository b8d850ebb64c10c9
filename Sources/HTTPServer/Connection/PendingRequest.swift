import Tracing

/// The part of a request that is kept until its response is complete. The bytes of the head may be released earlier.
package struct PendingRequest {
    package var id: RequestID
    var method: Method
    var isVersion11: Bool
    var keepsAlive: Bool
    /// The conditions of a safe request (``Method/isSafe``); `nil` for other requests, whose handlers check them.
    var ifMatch: String?
    var ifNoneMatch: String?
    /// Whether the client prefers compressed responses.
    var acceptsGzip = false
    /// The index in the route table; `nil` if no route matched.
    package var route: Int?
    /// Monotonic nanoseconds at which the request was complete, or its head if its body is streamed.
    var startedAt: UInt64
    /// The request target; kept only for an access log.
    var target: String?
    /// The response, while it waits for the responses to earlier requests.
    var response: Response?
    /// The values of `X-Forwarded-For`; kept only for an access log.
    var forwardedFor: String?
    /// The caller's name as the application set it; kept only for an access log.
    var caller: String?
    /// The task that works on an asynchronous response. It is cancelled if the connection is closed.
    var task: Task<Void, Never>?
    /// `nil` if nothing is traced.
    var span: Span?
    /// Header fields that the response gets in addition to its own.
    package var fields: [(name: StaticString, value: String)] = []

    var isHead: Bool { method == .head }

    /// The number of bytes held for this request, as far as the client or the handler determines it.
    var heldBytes: Int {
        (ifMatch?.utf8.count ?? 0) + (ifNoneMatch?.utf8.count ?? 0) + (target?.utf8.count ?? 0)
            + (forwardedFor?.utf8.count ?? 0) + (response?.heldBytes ?? 0)
    }

    /// Whether the client must get 412 instead of a response, because `If-Match` does not list its entity tag
    /// (RFC 9110 §13.1.1). Checked before `If-None-Match`, which leads to 304 (§13.2.2).
    package func failsIfMatch(with response: borrowing Response) -> Bool {
        guard let ifMatch, let tag = response.entityTag, [.ok, .notModified].contains(response.status) else {
            return false
        }
        return !tag.isListed(in: ifMatch, weakly: false)
    }
}

extension PendingRequest {
    /// - Parameters:
    ///   - bytes: the bytes from which the head was parsed.
    ///   - route: the index in the route table; `nil` if none matched.
    ///   - time: the start in monotonic nanoseconds.
    @inline(__always)
    package init(
        _ head: RequestHead, in bytes: UnsafeRawBufferPointer, id: RequestID, route: Int?, keepsAlive: Bool,
        at time: UInt64, for application: any Application
    ) {
        self.init(
            id: id, method: head.method, isVersion11: head.isVersion11, keepsAlive: keepsAlive, route: route,
            startedAt: time)
        if head.method.isSafe {
            ifMatch = head.joinedValue(of: "if-match", in: bytes)
            ifNoneMatch = head.joinedValue(of: "if-none-match", in: bytes)
        }
        acceptsGzip = head.acceptsGzip(in: bytes)
        if application.logsRequests {
            forwardedFor = head.joinedValue(of: "x-forwarded-for", in: bytes)
            target = head.target(in: bytes)
        }
        fields = application.fields(of: head, in: bytes, route: route)
    }

    /// A request that is refused before its head is complete.
    ///
    /// - Parameter fields: further header fields of the response.
    package init(refused id: RequestID, at time: UInt64, fields: [(name: StaticString, value: String)]) {
        self.init(id: id, method: .get, isVersion11: true, keepsAlive: false, route: nil, startedAt: time)
        self.fields = fields
    }
}

extension Application {
    /// Returns the header fields that the application adds to the response. The head may be incomplete, if the request
    /// is refused before its end.
    @inline(__always)
    package func fields(
        of head: RequestHead, in bytes: UnsafeRawBufferPointer, route: Int?
    ) -> [(name: StaticString, value: String)] {
        let fields = readsOrigin ? fields(origin: head.joinedValue(of: "origin", in: bytes), route: route) : []
        guard let name = markedRequestField, head.joinedValue(of: name, in: bytes) != nil else { return fields }
        return fields + markers()
    }
}

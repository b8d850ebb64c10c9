/// What must be known of a request when its answer is written.
struct PendingRequest {
    var id: RequestID
    var method: Method
    var isVersion11: Bool
    var keepsAlive: Bool
    var ifNoneMatch: String?
    /// The index in the route table; `nil` when none matched.
    var route: Int?
    /// Monotonic nanoseconds at which the request was whole, or its head if its body is taken in pieces.
    var startedAt: UInt64
    /// The target, kept only when there is an access log.
    var target: String?
    /// The answer, when it is here before those of earlier requests.
    var response: Response?
    /// The values of `X-Forwarded-For`, kept only when there is an access log.
    var forwardedFor: String?
    /// Who makes the request, as the application has noted it for the access log.
    var caller: String?
    /// Bytes of the whole response, when it has been written.
    var sentBytes = 0

    var isHead: Bool { method == .head }

    /// Bytes whose number the peer decides.
    var heldBytes: Int {
        (ifNoneMatch?.utf8.count ?? 0) + (target?.utf8.count ?? 0) + (forwardedFor?.utf8.count ?? 0)
            + (response?.heldBytes ?? 0)
    }
}

extension PendingRequest {
    /// One that is not handled, of which nothing is known.
    init(refused id: RequestID, at time: UInt64) {
        self.init(
            id: id, method: .get, isVersion11: true, keepsAlive: false, ifNoneMatch: nil, route: nil, startedAt: time,
            target: nil, response: nil)
    }
}

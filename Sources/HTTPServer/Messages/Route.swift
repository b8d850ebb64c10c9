/// One line of the route table.
public struct Route {
    typealias StreamedHandler = (borrowing Request, Responder) -> (any BodyReceiver)?
    /// Returns the response to a request that is refused, and the name of its caller; `nil` if it is not refused.
    public typealias Refusal = (borrowing Request) -> (response: Response, caller: String?)?

    /// The function that handles a request of the route.
    public enum Handler {
        /// Called with the complete request. Responds through the responder, at once or later.
        case buffered((borrowing Request, Responder) -> Void)
        /// Called with the head. Returns the receiver of the body, or `nil` after a response that needs no body.
        case streamed((borrowing Request, Responder) -> (any BodyReceiver)?)
    }

    public let method: Method
    /// A path such as `/v1/profiles/{user_id}`. A part in braces matches one non-empty part of the path. Text after the
    /// braces, as in `/datafiles/{sdk_key}.json`, must be the end of that part.
    public let pattern: String
    public let handler: Handler
    /// Whether the route is served even when the server is overloaded.
    public let isVital: Bool
    /// Refuses a request by its head alone, for example for lack of a token. Called only if the client waits for
    /// `100 (Continue)` before it sends the body, so the handler must check again. The caller's name is for
    /// ``Responder/setCaller(_:)``.
    let refusal: Refusal?
    /// The maximum length of a body in bytes, if the route accepts more than ``Limits/bodyBytes``; `nil` otherwise.
    public let bodyBytes: Int?
    /// Whether a request changes state. Pipelined requests behind it wait for its response, so that they see the
    /// change.
    public let changesState: Bool
    /// Whether another thread builds a large response later. Pipelined requests behind the request wait, so that a
    /// connection holds one such response at a time.
    public let respondsLater: Bool

    /// Whether pipelined requests behind a request of this route wait for its response.
    var holdsNext: Bool { changesState || respondsLater }

    /// The maximum length of a body in bytes.
    func bodyBytes(_ limits: Limits) -> Int { max(limits.bodyBytes, bodyBytes ?? 0) }

    /// - Parameter changesState: `nil` if ``Method/isSafe`` decides. A `GET` that changes state does not serve `HEAD`.
    public init(
        _ method: Method, _ pattern: String, isVital: Bool = false, changesState: Bool? = nil,
        respondsLater: Bool = false, bodyBytes: Int? = nil, refusal: Refusal? = nil, _ handler: Handler
    ) {
        self.method = method
        self.pattern = pattern
        self.handler = handler
        self.isVital = isVital
        self.refusal = refusal
        self.bodyBytes = bodyBytes
        self.changesState = changesState ?? !method.isSafe
        self.respondsLater = respondsLater
    }
}

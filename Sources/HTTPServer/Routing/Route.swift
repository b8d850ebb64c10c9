/// One line of the route table.
public struct Route {
    public enum Handler {
        /// Called with the whole request; answers through the responder, at once or later.
        case buffered((borrowing Request, Responder) -> Void)
        /// Called with the head. Returns who takes the body; `nil` after an answer that needs no body.
        case streamed((borrowing Request, Responder) -> (any BodyReceiver)?)
    }

    public let method: Method
    /// A path such as `/v1/profiles/{user_id}`; a part in braces stands for any one non-empty part.
    public let pattern: String
    public let handler: Handler
    /// Whether it is served also while the server has more to do than it can.
    public let isVital: Bool
    /// Whether requests behind it on the connection wait for its answer: what it changes is theirs to see.
    public let changesState: Bool
    /// Whether a large response comes later, from another thread. Requests behind it on the connection wait for that,
    /// so that one such response at a time takes memory.
    public let respondsLater: Bool

    var holdsNext: Bool { changesState || respondsLater }

    /// - Parameter changesState: `nil`: as the method says; a `GET` that changes something is not served for `HEAD`.
    public init(
        _ method: Method, _ pattern: String, isVital: Bool = false, changesState: Bool? = nil,
        respondsLater: Bool = false, _ handler: Handler
    ) {
        self.method = method
        self.pattern = pattern
        self.handler = handler
        self.isVital = isVital
        self.changesState = changesState ?? !method.isSafe
        self.respondsLater = respondsLater
    }
}

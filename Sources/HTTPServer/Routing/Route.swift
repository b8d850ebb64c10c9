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

    public init(_ method: Method, _ pattern: String, isVital: Bool = false, _ handler: Handler) {
        self.method = method
        self.pattern = pattern
        self.handler = handler
        self.isVital = isVital
    }
}

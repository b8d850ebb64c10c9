/// A request to the receiver of a webhook.
public struct WebhookRequest: Sendable {
    public var url: String
    /// Header fields, such as `Content-Type: application/json`.
    public var fields: [String]
    public var body: [UInt8]
    /// The time limit for the whole exchange, in seconds.
    public var seconds: Double
    /// Whether the receiver may have an address that is not public.
    public var allowsPrivateAddresses: Bool
}

/// The response to a ``WebhookRequest``.
public struct WebhookResponse: Sendable {
    /// The HTTP status; 0 if there was no response.
    public var status: Int
    /// Why there was no response; `nil` if there was one.
    public var failure: String?

    public init(status: Int, failure: String? = nil) {
        self.status = status
        self.failure = failure
    }
}

/// The options of the ``WebhookSender``.
public struct WebhookOptions: Sendable {
    /// Whether receivers may have addresses that are not public, and URLs without TLS.
    public var allowsPrivateAddresses = false
    /// The time limit for the response of a receiver, in seconds.
    public var timeout = 10.0
    /// The time in seconds for which a failed delivery is repeated. Then the webhook is paused.
    public var retryPeriod = 86_400.0
    /// The URL of the server for browsers, without a slash at the end.
    public var publicURL: String?
    /// Makes a request and waits for its response; `nil` if the program cannot send any.
    public var send: (@Sendable (WebhookRequest) -> WebhookResponse)?
    /// Reads the secrets of a named file, one per line; `nil` if there is no directory of secrets.
    public var readSecrets: (@Sendable (_ name: String) throws -> [String])?

    public init() {}
}

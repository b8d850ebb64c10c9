public import Chronology

/// A receiver of events: its URL, the events that it gets, and the state of the delivery. Events are entries of the
/// audit log. Only one server at a time sends the events of a webhook, in the order of the log.
public struct Webhook: Sendable, Equatable {
    /// The format of the body of a delivery. The standard format has the audit entry as JSON. The formats of Slack and
    /// Teams have a sentence about the entry, and a link if the server knows its own URL.
    public enum Format: String, Sendable, CaseIterable {
        case standard, slack, teams
    }

    /// A secret that the server has generated.
    public struct Secret: Sendable, Equatable {
        /// `whsec_` and the key in base64.
        public var text: String
        /// When a replaced secret is no longer used; `nil` for the current one.
        public var until: Instant?

        public init(_ text: String, until: Instant? = nil) {
            self.text = text
            self.until = until
        }
    }

    /// The properties that admins define.
    public struct Definition: Sendable, Equatable {
        public var url: String
        /// The names of the events to send, and patterns such as `experiment.*`.
        public var events: [String]
        /// The project whose events are sent; `nil` for all events, including those that concern no project.
        public var sdkKey: String?
        public var format: Format
        public var isEnabled: Bool
        /// The secrets, newest first; empty with ``secretFile``.
        public var secrets: [Secret]
        /// The name of the file with the secret; `nil` if the server has generated it.
        public var secretFile: String?

        public init(
            url: String, events: [String], sdkKey: String?, format: Format, isEnabled: Bool, secrets: [Secret],
            secretFile: String?
        ) {
            self.url = url
            self.events = events
            self.sdkKey = sdkKey
            self.format = format
            self.isEnabled = isEnabled
            self.secrets = secrets
            self.secretFile = secretFile
        }
    }

    /// The outcome of an attempt to deliver an event.
    public struct Delivery: Sendable, Equatable {
        public var eventID: String
        public var event: String
        public var attemptedAt: Instant
        /// The status of the response; 0 if there was none.
        public var status: Int
        /// Why the attempt failed; `nil` if the event was accepted.
        public var failure: String?

        public init(eventID: String, event: String, attemptedAt: Instant, status: Int, failure: String?) {
            self.eventID = eventID
            self.event = event
            self.attemptedAt = attemptedAt
            self.status = status
            self.failure = failure
        }
    }

    /// The state of the delivery. A server claims the webhook for a limited time, and renews the claim with each step,
    /// so that no other server sends the same events.
    public struct State: Sendable, Equatable {
        /// The id of the last audit entry that has been processed: delivered, or found not to be an event for this
        /// webhook.
        public var position: Int64
        /// The server that holds the claim; `nil` if none does.
        public var holder: String?
        /// When the claim ends.
        public var heldUntil = Instant.epoch
        /// The number of failed attempts for the event after ``position``.
        public var failures: Int64 = 0
        /// When the first of these attempts failed; `nil` if there is none.
        public var failingSince: Instant?
        /// The earliest time of the next attempt.
        public var nextAttempt = Instant.epoch
        /// When the event that is delivered next happened; `nil` if no event waits.
        public var pendingSince: Instant?
        /// Why the webhook is paused until an admin enables it again; `nil` if it is not paused.
        public var pause: String?
        /// The last outcomes, newest first, at most ``Webhook/deliveryLimit``.
        public var deliveries: [Delivery] = []

        public init(position: Int64) {
            self.position = position
        }

        /// Ends the pause and the claim. The delivery continues with the event that failed.
        mutating func resume() {
            failures = 0
            failingSince = nil
            nextAttempt = .epoch
            pause = nil
            holder = nil
            heldUntil = .epoch
        }

        /// Adds an outcome, and removes the oldest outcome beyond ``Webhook/deliveryLimit``.
        public mutating func add(_ delivery: Delivery) {
            deliveries.insert(delivery, at: 0)
            if deliveries.count > Webhook.deliveryLimit { deliveries.removeLast() }
        }
    }

    public var key: String
    public var definition: Definition
    public var state: State

    /// The project whose events are sent; `nil` for all events.
    public var sdkKey: String? { definition.sdkKey }

    /// Whether the webhook gets the events of a project.
    public func concerns(_ project: String) -> Bool { sdkKey == nil || sdkKey == project }

    public init(key: String, _ definition: Definition, state: State = State(position: 0)) {
        self.key = key
        self.definition = definition
        self.state = state
    }

    /// The maximum number of webhooks.
    public static let limit = 100
    /// The maximum number of outcomes that are kept per webhook.
    public static let deliveryLimit = 20
}

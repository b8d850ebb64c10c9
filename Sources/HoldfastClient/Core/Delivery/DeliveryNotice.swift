/// What became of an event; see ``HoldfastClient/deliveries()``.
public struct DeliveryNotice: Sendable {
    public enum Outcome: Sendable {
        /// The server has it.
        case delivered
        /// The server will never take it; it is not sent again.
        case refused(reason: String)
        /// It is not kept: too many wait, or the disk does not take it.
        case dropped(reason: String)
        /// It could not be sent, or the server may take it later; it is sent again.
        case postponed(HoldfastError)
    }

    public let event: HoldfastEvent
    public let outcome: Outcome
    /// Whether it had been kept until now.
    let wasKept: Bool

    init(event: HoldfastEvent, outcome: Outcome, wasKept: Bool = false) {
        self.event = event
        self.outcome = outcome
        self.wasKept = wasKept
    }
}

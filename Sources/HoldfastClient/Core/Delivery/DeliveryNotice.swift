/// What became of an event; see ``HoldfastClient/deliveries()``.
public struct DeliveryNotice: Sendable {
    public enum Outcome: Sendable {
        /// The server has it.
        case delivered
        /// The server will never take it; it is not sent again.
        case refused(reason: String)
        /// It was not kept: too many wait, or the disk does not take it.
        case dropped(reason: String)
        /// It could not be sent, and will be again.
        case postponed(HoldfastError)
    }

    public let event: HoldfastEvent
    public let outcome: Outcome
}

/// The outcome of an update or deletion of attributes.
public struct AttributeChangeOutcome: Sendable {
    public enum Operation: Sendable, Hashable {
        case update, delete
    }

    public enum Result: Sendable {
        /// The server stored the change.
        case success
        /// The change is lost: the server refused it, or the queue was full.
        case failure(reason: String)
        /// The change could not be sent now. It will be sent again.
        case postponed(HoldfastError)
    }

    /// Whether attributes were updated or deleted. A change that does both counts as an update.
    public let operation: Operation
    /// The user whose attributes were changed.
    public let userID: String
    /// Names of the attributes.
    public let names: [String]
    /// What has become of the change.
    public let result: Result

    /// - Returns: `nil` for events of other kinds.
    init?(_ notice: DeliveryNotice) {
        guard case .attributes(let event) = notice.event else { return nil }
        operation = event.attributes.isEmpty ? .delete : .update
        userID = event.userID
        names = event.names
        result =
            switch notice.outcome {
            case .delivered: .success
            case .refused(let reason): .failure(reason: reason)
            case .dropped(let reason): .failure(reason: reason.description)
            case .postponed(let error): .postponed(error)
            }
    }
}

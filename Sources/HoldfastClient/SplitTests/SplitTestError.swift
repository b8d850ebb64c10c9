/// Why there is no group.
public enum SplitTestError: Error, Sendable, Equatable {
    /// No group is kept, and the server could not be reached; it may be later.
    case unavailable(reason: String)

    /// The server knows no such test, or refused to answer for another reason.
    case refused(testKey: String, reason: String)

    /// The user was given a variation that is no case of the test's groups.
    case unknownGroup(testKey: String, variationKey: String)

    /// The app's storage failed, so the group could not be read or would not last.
    case storage(reason: String)
}

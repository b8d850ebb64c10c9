/// Why remote values could not be fetched. The values there were stay in use.
public enum RemoteValueError: Error, Sendable, Equatable {
    /// The source could not be reached or did not answer in time; it may later.
    case unavailable(reason: String)

    /// The source answered, and refused or made no sense; the same request will not do better.
    case refused(reason: String)
}

/// A value as its keeper has it, before the app's type is known.
public enum RemoteRawValue: Sendable, Hashable {
    case string(String)
    case bool(Bool)
    case number(Double)

    /// The variation a user has of a flag: as a string its key, as a Boolean whether the flag is enabled.
    case variation(key: String, enabled: Bool)
}

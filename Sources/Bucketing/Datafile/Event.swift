/// Something that users do, as conversions name it.
public struct Event: Sendable {
    public let id: Identifier
    public let key: Identifier
    public let experimentIDs: [Identifier]
}

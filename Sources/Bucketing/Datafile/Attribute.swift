/// Something that is known of users, as audiences and events name it.
public struct Attribute: Sendable {
    public let id: Identifier
    public let key: Identifier
}

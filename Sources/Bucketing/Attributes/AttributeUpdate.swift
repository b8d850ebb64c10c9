/// What becomes of one attribute of a user.
public enum AttributeUpdate: Sendable, Hashable {
    case set(AttributeValue)
    case remove
}

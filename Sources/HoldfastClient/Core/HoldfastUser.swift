/// Whom flags are evaluated for.
public struct HoldfastUser: Sendable, Equatable, Codable {
    /// 1 to 1,024 bytes of UTF-8 without NUL.
    public let id: String
    /// What audiences ask for.
    public var attributes: [String: AttributeValue]

    public init(id: String, attributes: [String: AttributeValue] = [:]) {
        self.id = id
        self.attributes = attributes
    }

    public static func == (left: HoldfastUser, right: HoldfastUser) -> Bool {
        left.id.hasSameBytes(as: right.id) && left.attributes == right.attributes
    }

    /// - Throws: ``HoldfastError/invalidArgument(_:)`` when it is no id.
    static func check(id: String) throws(HoldfastError) {
        guard (1...1_024).contains(id.utf8.count), !id.utf8.contains(0) else {
            throw .invalidArgument("a user id is 1 to 1024 bytes long and holds no NUL")
        }
    }
}

/// Why a value is none for an attribute.
public struct AttributeRefusal: Error, Sendable, Equatable, CustomStringConvertible {
    public let description: String

    init(_ description: String) {
        self.description = description
    }
}

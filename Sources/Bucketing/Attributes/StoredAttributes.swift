/// What is stored of a user's attributes, as conditions look it up.
public struct StoredAttributes: Sendable {
    public let schema: AttributeSchema
    /// `nil` if nothing is stored, or nobody asks for it.
    public let record: AttributeRecord?

    public init(schema: AttributeSchema, record: AttributeRecord?) {
        self.schema = schema
        self.record = record
    }

    /// Lends the value of an attribute; `nil` if the user has none, or there is no such attribute.
    func withValue<Answer>(of name: Identifier, _ body: (AttributeField?) -> Answer) -> Answer {
        guard let record, let definition = schema.attribute(name) else { return body(nil) }
        return record.bytes.withUnsafeBytes { bytes in
            body(AttributeFields(bytes)?.field(definition.number))
        }
    }
}

extension JSONWriter {
    /// Writes a whole value.
    ///
    /// - Parameter sortingKeys: whether members are ordered by the bytes of their keys rather than as they stand.
    public mutating func value(_ value: JSONValue, sortingKeys: Bool = false) {
        switch value {
        case .null: null()
        case .bool(let value): bool(value)
        case .integer(let value): integer(value)
        case .number(let value): number(value)
        case .string(let value): string(value)
        case .array(let elements):
            beginArray()
            for element in elements {
                self.value(element, sortingKeys: sortingKeys)
            }
            endArray()
        case .object(let object):
            let members = object.members
            beginObject()
            for member in sortingKeys ? members.sorted(by: { Identifier($0.key) < Identifier($1.key) }) : members {
                key(text: member.key)
                self.value(member.value, sortingKeys: sortingKeys)
            }
            endObject()
        }
    }
}

extension JSONValue {
    /// The value as JSON text without white space.
    public func encoded(sortingKeys: Bool = false) -> [UInt8] {
        var writer = JSONWriter()
        writer.value(self, sortingKeys: sortingKeys)
        return writer.finish()
    }
}

import Bucketing
import JSON

extension AttributeDefinition {
    /// As `GET /v1/attributes/{name}` answers it.
    var json: JSONValue {
        var object = JSONObject()
        object["name"] = .string(name.string)
        object["type"] = .string(type.rawValue)
        if type == .selection {
            object["values"] = .array(allowedValues.map { .string($0.string) })
            object["multiple"] = .bool(isMultiple)
        }
        return .object(object)
    }
}

extension AttributeRecord {
    /// The values by name, in the order of the schema.
    func json(_ schema: AttributeSchema) -> JSONValue {
        var object = JSONObject()
        for definition in schema.attributes {
            object[definition.name.string] = self[definition.number]?.json(isMultiple: definition.isMultiple)
        }
        return .object(object)
    }
}

extension AttributeSchema {
    /// The names of attributes, in the order of the schema; those that are gone are left out.
    func names(_ numbers: some Collection<UInt32>) -> JSONValue {
        let numbers = Set(numbers)
        return .array(attributes.filter { numbers.contains($0.number) }.map { .string($0.name.string) })
    }
}

extension Segment {
    /// As `GET /v1/segments/{name}` answers it.
    var json: JSONObject {
        var object = JSONObject()
        object["name"] = .string(name.string)
        object["conditions"] = conditions
        return object
    }
}

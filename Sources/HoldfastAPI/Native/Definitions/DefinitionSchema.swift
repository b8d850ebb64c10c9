import HTTPServer
import JSON

/// The JSON Schema of definitions in files, for editors and other tools. It is the part of the OpenAPI document that
/// describes `/v1/definitions`: the schema `Definitions`, with the schemas to which it refers in `$defs`.
public enum DefinitionSchema {
    /// The schema as JSON.
    public static let text = schema.encoded()
    private static let tag = text.withUnsafeBytes { EntityTag(hashing: $0) }

    /// `GET /v1/definitions/schema.json`
    static func get(_ request: borrowing Request, _ call: Call) -> Response {
        Response(.ok, contentType: "application/schema+json", entityTag: tag, body: .bytes(text))
    }

    /// The name of the schema of a whole document.
    private static let root = "Definitions"
    /// The start of a reference to a schema in the OpenAPI document.
    private static let prefix = "#/components/schemas/"

    private static var schema: JSONValue {
        let document = try? JSONParser().parse(OperationsEndpoints.openAPIText)
        let schemas = document?.object?["components"]?.object?["schemas"]?.object ?? JSONObject()
        var schema = JSONObject()
        schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
        schema["title"] = "Holdfast definitions"
        var names: [String] = []
        for member in withLocalReferences(schemas[root] ?? .null, &names).object ?? JSONObject() {
            schema[member.key] = member.value
        }
        var definitions = JSONObject()
        // Each schema may add the names of others.
        var index = 0
        while index < names.count {
            definitions[names[index]] = withLocalReferences(schemas[names[index]] ?? .null, &names)
            index += 1
        }
        schema["$defs"] = .object(definitions)
        return .object(schema)
    }

    /// Returns a schema whose references lead to `$defs` of the same file.
    ///
    /// - Parameter names: gets the names of the schemas to which the schema refers.
    private static func withLocalReferences(_ value: JSONValue, _ names: inout [String]) -> JSONValue {
        switch value {
        case .array(let elements): return .array(elements.map { withLocalReferences($0, &names) })
        case .object(let object):
            var copy = JSONObject()
            for member in object {
                if member.key == "$ref", let reference = member.value.string, reference.hasPrefix(prefix) {
                    let name = String(reference.dropFirst(prefix.count))
                    if !names.contains(name) { names.append(name) }
                    copy[member.key] = .string("#/$defs/" + name)
                } else {
                    copy[member.key] = withLocalReferences(member.value, &names)
                }
            }
            return .object(copy)
        default: return value
        }
    }
}

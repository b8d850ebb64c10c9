import APITestSupport
import JSON

/// A request as the published description shows it.
struct ExampleRequest {
    let method: String
    let target: String
    let body: String?
    let fields: [String]
    let operation: JSONValue
    /// As the description has it, with parameters in braces.
    let path: String
    /// The scope that the description asks for, `any` if every token will do; `nil` for what needs none.
    let scope: String?
    /// All scopes of which one suffices.
    let scopes: [String]

    /// One of each operation, in an order in which each finds what it needs: what looks before what changes, and what
    /// erases last.
    static func all(in document: JSONValue) -> [ExampleRequest] {
        let methods = ["get", "post", "put", "patch", "delete"]
        // A part is erased before the whole that it belongs to. An import comes before anybody is exposed.
        let all = document["paths"].object?.reversed() ?? []
        let paths = all.filter { $0.key.hasSuffix("/import") } + all.filter { !$0.key.hasSuffix("/import") }
        return methods.flatMap { method in
            paths.compactMap { path in
                guard let operation = path.value.object?[method] else { return nil }
                return ExampleRequest(method, path.key, path.value, operation, document)
            }
        }
    }

    private init(
        _ method: String, _ path: String, _ item: JSONValue, _ operation: JSONValue, _ document: JSONValue
    ) {
        let parameters = ((item["parameters"].array ?? []) + (operation["parameters"].array ?? [])).map { parameter in
            guard let name = parameter["$ref"].string?.split(separator: "/").last else { return parameter }
            return document["components"]["parameters"][String(name)]
        }
        self.method = method.uppercased()
        self.path = path
        self.operation = operation
        target = Self.target(path, parameters)
        body = Self.body(operation)
        fields = Self.fields(parameters, operation)
        scopes = (operation["security"].array ?? []).compactMap { alternative in
            alternative["token"].array.map { $0.first?.string ?? "any" }
        }
        scope = scopes.first
    }

    private static func target(_ path: String, _ parameters: [JSONValue]) -> String {
        var target = path
        var query: [String] = []
        for parameter in parameters where parameter["required"] == true && parameter["in"] != "header" {
            let name = parameter["name"].string ?? ""
            let content = parameter["content"]["application/json"]["example"]
            let text = parameter["example"].string ?? escaped(content.encoded())
            if parameter["in"] == "path" {
                target = target.replacing("{\(name)}", with: text)
            } else {
                query.append("\(name)=\(text)")
            }
        }
        return query.isEmpty ? target : "\(target)?\(query.joined(separator: "&"))"
    }

    /// The media type of the body, and the header fields that must be there.
    private static func fields(_ parameters: [JSONValue], _ operation: JSONValue) -> [String] {
        let required = parameters.filter { $0["in"] == "header" && $0["required"] == true }
        let mediaType = operation["requestBody"]["content"].object?.members.first?.key
        return required.map { "\($0["name"].string ?? ""): \($0["example"].string ?? "")" }
            + (mediaType.map { ["Content-Type: \($0)"] } ?? [])
    }

    private static func escaped(_ bytes: [UInt8]) -> String {
        bytes.map { "%" + String(UInt16($0) + 0x100, radix: 16).suffix(2) }.joined()
    }

    private static func body(_ operation: JSONValue) -> String? {
        guard let example = operation["requestBody"]["content"].object?.members.first?.value.object?["example"] else {
            return nil
        }
        return example.string ?? String(decoding: example.encoded(), as: UTF8.self)
    }
}

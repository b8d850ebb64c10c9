import Bucketing
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// `/v1/attributes`: which attributes users may have, and what their values are.
struct AttributeEndpoints {
    let store: any StoreSession
    let catalog: ProjectCatalog
    let projects: ProjectView

    /// Attributes that may be defined.
    private static let limit = 500

    /// All at once by default, as clients that know no pages expect.
    func list(_ request: borrowing Request, _ call: Call) throws(CoreError) -> Response {
        let page = try ListPage(request, limit: Self.limit)
        return JSONList("attributes", page.select(projects.schema.attributes) { $0.name }) { $0.json }.response()
    }

    func get(_ request: borrowing Request, _ call: Call) throws(CoreError) -> Response {
        let name = try request.definedName()
        let schema = projects.schema
        guard let definition = schema.attribute(name) else { throw .undefined(schema.unknownAttribute(name)) }
        return .json(definition.json)
    }

    /// Defines an attribute, or gives a selection other values; 201 if it is new.
    func put(_ request: borrowing Request, _ call: Call) async throws -> Response {
        try call.requireUpToDate()
        let name = try request.definedName()
        let value = try request.withBody { bytes throws(CoreError) in try JSONInput.parse(bytes) }
        let definition = try AttributeDefinition(value, name: name)
        let schema = projects.schema
        guard schema.attributes.count < Self.limit || schema.attribute(name) != nil else {
            throw CoreError(.conflict, "at most \(Self.limit) attributes may be defined")
        }
        let author = call.author(request)
        switch try await store.write(.putAttribute(definition, by: author)) {
        case .created(let stored):
            try await catalog.refresh()
            return .json(stored.json, .created)
        case .changed(let stored):
            try await catalog.refresh()
            return .json(stored.json)
        case .unchanged(let stored): return .json(stored.json)
        case .otherType(let stored): throw Self.conflict(with: stored)
        }
    }

    /// Deletes an attribute and all its values. No reader sees the values any more.
    func delete(_ request: borrowing Request, _ call: Call) async throws -> Response {
        try call.requireUpToDate()
        let name = try request.definedName()
        let users = projects.schema.segments.values.filter { $0.asks(for: name) }.map(\.name).sorted()
        guard users.isEmpty else {
            let list = users.map { "'\($0)'" }.joined(separator: ", ")
            throw CoreError(.conflict, "segments use the attribute '\(name)'; change them first: \(list)")
        }
        let author = call.author(request)
        guard try await store.write(.removeAttribute(name, by: author)) else {
            throw CoreError.undefined(catalog.snapshot().schema.unknownAttribute(name))
        }
        try await catalog.refresh()
        return Response(.noContent)
    }

    private static func conflict(with stored: AttributeDefinition) -> CoreError {
        let multiple = stored.isMultiple ? " of several values" : ""
        return CoreError(
            .conflict,
            "the type of '\(stored.name)' must stay \(stored.type)\(multiple), because its values have this type; delete the attribute to change it",
            at: ["type"])
    }
}

extension AttributeDefinition {
    /// The response of `GET /v1/attributes/{name}`.
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

extension AttributeSchema {
    /// Returns the names of attributes in the order of the schema; deleted ones are left out.
    func names(_ numbers: some Collection<UInt32>) -> JSONValue {
        let numbers = Set(numbers)
        return .array(attributes.filter { numbers.contains($0.number) }.map { .string($0.name.string) })
    }
}

extension Segment {
    /// The response of `GET /v1/segments/{name}`.
    var json: JSONObject {
        var object = JSONObject()
        object["name"] = .string(name.string)
        object["conditions"] = conditions
        return object
    }
}

import Bucketing
import Definitions
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// `/v1/attributes`: the schema of the attributes that users may have. All projects share it.
struct AttributeEndpoints {
    let store: any StoreSession
    let catalog: ProjectCatalog
    let projects: ProjectView

    /// Responds with the attributes. Without `limit` there are no pages, for clients that do not support them.
    func list(_ request: borrowing Request, _ call: Call) throws(CoreError) -> Response {
        let page = try ListPage(request, limit: AttributeSchema.attributeLimit)
        return JSONList("attributes", page.select(projects.schema.attributes) { $0.name }) { $0.json }.response()
    }

    func get(_ request: borrowing Request, _ call: Call) throws(CoreError) -> Response {
        let name = try request.definedName()
        let schema = projects.schema
        guard let definition = schema.attribute(name) else { throw .undefined(schema.unknownAttribute(name)) }
        return .json(definition.json)
    }

    /// Defines an attribute, or changes the values of a selection; 201 if it is new.
    func put(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let name = try request.definedName()
        let value = try request.withBody { bytes throws(CoreError) in try JSONInput.parse(bytes) }
        let definition = try AttributeDefinition(value, name: name)
        let schema = projects.schema
        try schema.checkRoom(forAttribute: name)
        let author = call.author(request)
        switch try await store.write(.putAttribute(definition, by: author)) {
        case .created(let stored):
            try await catalog.refresh()
            return .json(stored.json, .created)
        case .changed(let stored):
            try await catalog.refresh()
            return .json(stored.json)
        case .unchanged(let stored): return .json(stored.json)
        case .otherType(let stored): throw CoreError(otherTypeOf: stored)
        }
    }

    /// Deletes an attribute and all its values. It must not be used by a segment or an audience.
    func delete(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let name = try request.definedName()
        let segments = projects.schema.segments.values.filter { $0.asks(for: name) }.map(\.name).sorted()
        guard segments.isEmpty else {
            let list = segments.map { "'\($0)'" }.joined(separator: ", ")
            throw CoreError(.conflict, "segments use the attribute '\(name)'; change them first: \(list)")
        }
        let snapshot = catalog.snapshot()
        try await catalog.inBackground { _ in
            // Audiences and segments that use the attribute would admit other users than before.
            try snapshot.requireNone({ $0.keys(askingFor: name) }) { sdkKey, list in
                "audiences in the project '\(sdkKey)' ask for the attribute '\(name)'; change them first: \(list)"
            }
        }
        let author = call.author(request)
        guard try await store.write(.removeAttribute(name, by: author)) else {
            throw CoreError.undefined(catalog.snapshot().schema.unknownAttribute(name))
        }
        try await catalog.refresh()
        return Response(.noContent)
    }
}

extension AttributeSchema {
    /// Returns the names of attributes in the order of the schema; deleted ones are left out.
    func names(_ numbers: some Collection<UInt32>) -> JSONValue {
        let numbers = Set(numbers)
        return .array(attributes.filter { numbers.contains($0.number) }.map { .string($0.name.string) })
    }
}

import Bucketing
import HTTPServer
import JSON
import Storage

/// `/v1/attributes`: which attributes users may have, and what their values are.
struct AttributeEndpoints {
    let catalog: ProjectCatalog
    let projects: ProjectView

    /// Attributes that may be defined.
    private static let limit = 500

    func list(_ request: borrowing Request, _ call: Call) {
        JSONList("attributes", projects.schema.attributes) { $1.value($0.json) }.answer(call)
    }

    func get(_ request: borrowing Request, _ call: Call) {
        do throws(Problem) {
            let name = try request.definedName()
            guard let definition = projects.schema.attribute(name) else { throw Self.unknown(name) }
            call.answer(json: definition.json.encoded())
        } catch {
            call.fail(error)
        }
    }

    /// Defines an attribute, or gives a selection other values; 201 if it is new.
    func put(_ request: borrowing Request, _ call: Call) {
        do throws(Problem) {
            let name = try request.definedName()
            let value = try request.withBody { bytes throws(Problem) in try ProfileBody.parse(bytes) }
            let definition = try AttributeDefinition(value, name: name)
            let schema = projects.schema
            guard schema.attributes.count < Self.limit || schema.attribute(name) != nil else {
                throw Problem(.conflict, "at most \(Self.limit) attributes may be defined")
            }
            catalog.store.putAttribute(definition, by: call.author(request)) { [catalog] result in
                switch result {
                case .success(.created(let stored)): catalog.answer(call, .created, stored.json)
                case .success(.changed(let stored)): catalog.answer(call, .ok, stored.json)
                case .success(.unchanged(let stored)): call.answer(json: stored.json.encoded())
                case .success(.otherType(let stored)): call.fail(Self.conflict(with: stored))
                case .failure(let error): call.fail(error)
                }
            }
        } catch {
            call.fail(error)
        }
    }

    /// Deletes an attribute and all its values, which are gone at once for whoever reads.
    func delete(_ request: borrowing Request, _ call: Call) {
        do throws(Problem) {
            let name = try request.definedName()
            let users = projects.schema.segments.values.filter { $0.asks(for: name) }.map(\.name).sorted()
            guard users.isEmpty else {
                let list = users.map { "'\($0)'" }.joined(separator: ", ")
                throw Problem(.conflict, "segments use the attribute '\(name)'; change them first: \(list)")
            }
            catalog.store.removeAttribute(name, by: call.author(request)) { [catalog] result in
                switch result {
                case .success(true): catalog.answer(call, .noContent, nil)
                case .success(false): call.fail(Self.unknown(name))
                case .failure(let error): call.fail(error)
                }
            }
        } catch {
            call.fail(error)
        }
    }

    private static func unknown(_ name: Identifier) -> Problem {
        Problem(.notFound, "no attribute has the name '\(name)'")
    }

    private static func conflict(with stored: AttributeDefinition) -> Problem {
        let multiple = stored.isMultiple ? " of several values" : ""
        return Problem(
            .conflict,
            "the type of '\(stored.name)' must stay \(stored.type)\(multiple), as its values have it; delete the attribute to change it",
            at: ["type"])
    }
}

import Bucketing
import HTTPServer
import HoldfastCore
import JSON

/// `POST /v1/experiments/{key}/preview`: shows what a `PUT` with the same body would do, and changes nothing.
struct PreviewEndpoint {
    let catalog: ProjectCatalog
    let projects: ProjectView

    func post(_ request: borrowing Request, _ call: Call) async throws -> Response {
        try call.requireUpToDate()
        let input = try DefinitionEndpoints<Experiment>.PutRequest(request, projects)
        let schema = projects.schema
        let change = try await catalog.inBackground { _ in try DefinitionEndpoints<Experiment>.change(input, schema) }
        let draft = try await ProjectEditor(catalog).preview(input.sdkKey, change)
        guard let preview = ExperimentPreview(Identifier(input.key), from: draft.project?.datafile, to: draft.datafile)
        else { throw DefinitionEndpoints<Experiment>.unknown(input.key, in: draft.datafile) }
        let counts = try await PreviewCounter(catalog).count(preview, from: draft.project, to: draft.datafile)
        let description = preview.edited.description(in: draft.datafile, draft.definitions, sdkKey: input.sdkKey)
        let conditions = draft.outcome.change?.warnings(schema, draft.datafile) ?? []
        return .json(preview.json(counts, conditions, after: description))
    }
}

extension ExperimentPreview {
    /// The response of `POST /v1/experiments/{key}/preview`.
    ///
    /// - Parameters:
    ///   - conditions: those that nobody meets.
    ///   - description: the experiment as `GET` would show it after the change.
    fileprivate func json(
        _ counts: PreviewCounter.Counts, _ conditions: [JSONFault], after description: JSONValue
    ) -> JSONValue {
        let moves = moves.map { move -> JSONValue in
            [
                "from": move.from.map { .string($0.string) } ?? .null,
                "to": move.to.map { .string($0.string) } ?? .null,
                "share": .number(move.share),
            ]
        }
        let enrolled = counts.enrolled
        let warnings = warnings(hasUsers: enrolled.users > 0 || counts.exposed > 0).map { warning -> JSONValue in
            ["code": .string(warning.rawValue), "message": .string(warning.message)]
        }
        return [
            "experiment": description, "creates": .bool(former == nil),
            "new_users": ["changed": .number(changedShare), "moves": .array(moves)],
            "audience_changed": .bool(changesAudience),
            "enrolled": [
                "users": .integer(Int64(enrolled.users)), "keep": .integer(Int64(enrolled.keep)),
                "change": .integer(Int64(enrolled.change)), "lose": .integer(Int64(enrolled.lose)),
                "gain": .integer(Int64(enrolled.gain)), "exposed": .integer(Int64(counts.exposed)),
            ],
            "moves": counts.moves.json, "warnings": .array(warnings + conditions.map(\.warning)),
        ]
    }
}

import Bucketing
import Definitions
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// `POST /v1/experiments/{key}/preview` and `POST /v1/flags/{key}/preview`: show the effects of a `PUT` with the same
/// body, and change nothing.
struct PreviewEndpoint {
    let catalog: ProjectCatalog
    let clock: StoreClock
    let projects: ProjectView

    /// Responds with the users whom the change would affect, and with warnings.
    func postExperiment(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let preview = try await preview(of: Experiment.self, request, call)
        let key = preview.input.key
        let draft = preview.draft
        guard let effects = ExperimentPreview(Identifier(key), from: draft.project?.datafile, to: draft.datafile)
        else { throw Experiment.unknown(key, in: draft.compiled) }
        let counts = try await PreviewCounter(catalog).count(effects, from: draft.project, to: draft.compiled)
        let description = effects.edited.description(in: draft.compiled, sdkKey: preview.input.sdkKey)
        return .json(effects.json(counts, preview.warnings, after: description))
    }

    /// Responds with the users whose value would change, and with warnings.
    func postFlag(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let preview = try await preview(of: Flag.self, request, call)
        let key = preview.input.key
        let draft = preview.draft
        guard let flag = draft.datafile.flag(key: Identifier(key)) else {
            throw Flag.unknown(key, in: draft.compiled)
        }
        let counter = PreviewCounter(catalog)
        let moves = try await counter.countMoves(from: draft.project, to: draft.compiled)
        var users = PreviewCounter.ValueCounts()
        if let project = draft.project {
            users = try await counter.countValues(of: flag.key, from: project, to: draft.datafile)
        }
        return .json([
            "flag": flag.description(in: draft.compiled, sdkKey: preview.input.sdkKey),
            "creates": .bool(draft.outcome.status == .created), "moves": moves.json,
            "users": users.json, "warnings": .array(preview.warnings.map(\.json)),
        ])
    }

    /// A change that was made on a copy of the project, and that is not stored.
    private struct Preview<Element: AuditedElement> {
        let input: DefinitionEndpoints<Element>.PutRequest
        /// The changed copy.
        let draft: ProjectEditor.Draft<DefinitionEndpoints<Element>.PutOutcome>
        let warnings: [DefinitionWarning]
    }

    /// Makes the requested change on a copy of the project.
    private func preview<Element: AuditedElement>(
        of _: Element.Type, _ request: borrowing Request, _ call: Call
    ) async throws -> Preview<Element> {
        let input = try DefinitionEndpoints<Element>.PutRequest(request, call, projects)
        let sharing = try Request.sharePolicy(request.query(knowing: ["share"]), call)
        let schema = projects.schema
        let change = try await catalog.inBackground { _ in try DefinitionEndpoints<Element>.change(input, schema) }
        let draft = try await ProjectEditor(catalog, call.approvalPolicy, sharing: sharing).preview(
            input.sdkKey, change)
        let warnings = draft.outcome.change?.warnings(
            schema, draft.datafile, changing: draft.outcome.description, at: clock.now())
        return Preview(input: input, draft: draft, warnings: warnings ?? [])
    }
}

extension ExperimentPreview {
    /// The response of `POST /v1/experiments/{key}/preview`.
    ///
    /// - Parameters:
    ///   - definitionWarnings: the warnings about the definition, in addition to those about the change.
    ///   - description: the experiment as `GET` would show it after the change.
    fileprivate func json(
        _ counts: PreviewCounter.Counts, _ definitionWarnings: [DefinitionWarning], after description: JSONValue
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
            "moves": counts.moves.json, "warnings": .array(warnings + definitionWarnings.map(\.json)),
        ]
    }
}

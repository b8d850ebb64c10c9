import Bucketing
import Definitions
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// `POST /v1/experiments/{key}/conclude` ends an experiment, usually with a variation that everybody gets, the winner.
/// `POST /v1/experiments/{key}/reopen` makes it run again. `…/ramp` is in `RampEndpoint.swift`.
struct ConclusionEndpoints {
    let catalog: ProjectCatalog
    let projects: ProjectView
    let clock: StoreClock

    /// Concludes the experiment. The body is `{"winner":KEY or null,"reason":TEXT?}`.
    func conclude(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let key = try request.key()
        let conclusion = try request.withBody { bytes throws(CoreError) in
            try ConclusionInput(JSONInput.parse(bytes))
        }
        let now = clock.now()
        let author = call.author(request)
        return try await edit(request, call, .experimentConclude, key) { definitions throws(CoreError) in
            try definitions.conclude(Identifier(key), as: conclusion, at: now, by: author.name)
        }
    }

    /// Reopens a concluded experiment.
    func reopen(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let key = try request.key()
        return try await edit(request, call, .experimentReopen, key) { definitions throws(CoreError) in
            try definitions.reopen(Identifier(key))
        }
    }

    /// Edits the experiment in the path, and responds with the edited experiment.
    ///
    /// - Parameters:
    ///   - action: the action in the audit log.
    ///   - change: changes the definitions. It is called again if another request changes them meanwhile.
    func edit(
        _ request: borrowing Request, _ call: Call, _ action: AuditAction, _ key: String,
        _ change: @escaping @Sendable (inout ProjectDefinitions) throws(CoreError) -> Void
    ) async throws -> Response {
        typealias Endpoints = DefinitionEndpoints<Experiment>
        let sdkKey = try projects.sdkKeyToChange(request.sdkKey, for: call.access)
        let preconditions = Preconditions(request)
        let moves = try request.movePolicy()
        let note = Endpoints.note(action, key, sdkKey)
        let edited = try await ProjectEditor(catalog, call.approvalPolicy).edit(
            sdkKey, note, by: call.author(request), moves: moves
        ) { definitions, project throws(CoreError) in
            try preconditions.check(Endpoints.entityTag(of: key, project))
            guard let project, Experiment.find(Identifier(key), in: project.compiled) != nil else {
                throw Experiment.unknown(key, in: project?.compiled)
            }
            try definitions.expectNoDeliveryRule(Identifier(key))
            try change(&definitions)
        }
        let description = edited.notes.first?.after.object?[Experiment.noun]
        return try Endpoints.response(with: key, of: edited.project, showing: description)
    }
}

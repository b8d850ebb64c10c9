import Bucketing
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// `/v1/experiments`: experiments without a datafile at hand. What is changed is the stored datafile, its revision
/// raised, so that everybody who reads it sees the same. The project is named by `X-Optimizely-SDK-Key`, and need
/// not be when there is only one; the first experiment of all makes the project `default`.
struct ExperimentEndpoints {
    let catalog: ProjectCatalog
    let projects: ProjectView
    let previews: PreviewCounter

    func list(_ request: borrowing Request, _ call: Call) throws(CoreError) {
        let project = try projects.project(named: request.field("x-optimizely-sdk-key"))
        let experiments = project.datafile.experimentsBesideRules.map { Self.describe($0, project) }
        let response: JSONValue = ["experiments": .array(experiments)]
        call.respond(json: response.encoded(), entityTag: project.entityTag)
    }

    func get(_ request: borrowing Request, _ call: Call) throws(CoreError) {
        let project = try projects.project(named: request.field("x-optimizely-sdk-key"))
        let key = try request.key()
        guard let experiment = project.datafile.experiment(key: Identifier(key)) else { throw Self.unknown(key) }
        call.respond(json: Self.describe(experiment, project).encoded(), entityTag: project.entityTag)
    }

    /// Creates an experiment, or changes what the body names; 201 if it is new.
    func put(_ request: borrowing Request, _ call: Call) throws(CoreError) {
        let key = try request.key()
        let content = request.withBody { Array($0) }
        let sdkKey = try projects.sdkKeyToChange(request.field("x-optimizely-sdk-key"))
        let preconditions = Preconditions(request)
        let author = call.author(request)
        catalog.inBackground { [catalog] _ in
            call.attempt {
                let change = try Self.change(content, key, preconditions, catalog.snapshot().schema)
                ProjectEditor(catalog).edit(
                    sdkKey, Self.note(.experimentPut, key, sdkKey), by: author, change
                ) { result in
                    call.attempt {
                        let (project, status) = try result.get()
                        guard let experiment = project.datafile.experiment(key: Identifier(key)) else {
                            throw Self.unknown(key)
                        }
                        call.respond(
                            status, json: Self.describe(experiment, project).encoded(), entityTag: project.entityTag)
                    }
                }
            }
        }
    }

    /// Tells what ``put(_:_:)`` with the same body would do, and changes nothing.
    func preview(_ request: borrowing Request, _ call: Call) throws(CoreError) {
        let key = try request.key()
        let content = request.withBody { Array($0) }
        let sdkKey = try projects.sdkKeyToChange(request.field("x-optimizely-sdk-key"))
        let preconditions = Preconditions(request)
        catalog.inBackground { [catalog, previews] _ in
            call.attempt {
                let change = try Self.change(content, key, preconditions, catalog.snapshot().schema)
                ProjectEditor(catalog).preview(sdkKey, change) { result in
                    call.attempt {
                        let draft = try result.get()
                        guard
                            let preview = ExperimentPreview(
                                Identifier(key), from: draft.project?.datafile, to: draft.datafile)
                        else { throw Self.unknown(key) }
                        previews.count(preview) { result in
                            call.attempt {
                                let description = preview.edited.description(
                                    sdkKey: sdkKey, revision: draft.datafile.revision)
                                call.respond(json: preview.json(try result.get(), after: description).encoded())
                            }
                        }
                    }
                }
            }
        }
    }

    /// Returns the change that a body asks for.
    ///
    /// - Throws: 400 or 422 if the body is wrong. The change itself throws 412 if a condition does not hold, and what
    ///   ``ExperimentDefinition/apply(to:_:)`` throws.
    private static func change(
        _ content: [UInt8], _ key: String, _ preconditions: Preconditions, _ schema: AttributeSchema
    ) throws(CoreError) -> ProjectEditor.Change<Status> {
        let definition = try ExperimentDefinition(JSONInput.parse(content), key: key)
        try checkSegments(definition, schema)
        return { editor, project throws(CoreError) in
            let datafile = project?.datafile
            try preconditions.check(entityTag(of: key, project))
            try definition.apply(to: &editor, datafile)
            return datafile?.experiment(key: Identifier(key)) == nil ? Status.created : .ok
        }
    }

    /// Archives an experiment: nobody is enrolled any more, assignments stay in the profiles, results stay readable.
    func delete(_ request: borrowing Request, _ call: Call) throws(CoreError) {
        let key = try request.key()
        let sdkKey = try projects.sdkKeyToChange(request.field("x-optimizely-sdk-key"))
        let preconditions = Preconditions(request)
        ProjectEditor(catalog).edit(sdkKey, Self.note(.experimentArchive, key, sdkKey), by: call.author(request)) {
            editor, project throws(CoreError) in
            try preconditions.check(Self.entityTag(of: key, project))
            guard editor.experiment(key: Identifier(key)) != nil else { throw Self.unknown(key) }
            try ExperimentDefinition.archive(Identifier(key), in: &editor)
        } completion: { result in
            call.attempt {
                _ = try result.get()
                call.respond(Response(.noContent))
            }
        }
    }

    /// The tag of an experiment is that of its datafile; `nil` if there is no such experiment.
    private static func entityTag(of key: String, _ project: Project?) -> EntityTag? {
        project?.datafile.experiment(key: Identifier(key)) == nil ? nil : project?.entityTag
    }

    private static func note(_ action: AuditAction, _ key: String, _ sdkKey: String) -> ProjectEditor.Note {
        ProjectEditor.Note(action, of: key) { datafile in
            guard let datafile, let experiment = datafile.experiment(key: Identifier(key)) else { return .null }
            return ["experiment": experiment.description(sdkKey: sdkKey, revision: datafile.revision)]
        }
    }

    /// A segment that is not defined is most likely misspelt, and would admit nobody.
    private static func checkSegments(
        _ definition: ExperimentDefinition, _ schema: AttributeSchema
    ) throws(CoreError) {
        guard let audience = definition.audience else { return }
        for name in Mentions(audience: audience).segments.sorted() where schema.segments[name] == nil {
            throw CoreError(.unprocessable, "no segment has the name '\(name)'", at: ["audience"])
        }
    }

    private static func unknown(_ key: String) -> CoreError {
        CoreError(.notFound, "no experiment has the key '\(key)'")
    }

    private static func describe(_ experiment: Experiment, _ project: Project) -> JSONValue {
        experiment.description(sdkKey: project.sdkKey, revision: project.datafile.revision)
    }
}

import Bucketing
import HTTPServer
import JSON
import Storage

/// `/v1/experiments`: experiments without a datafile at hand. What is changed is the stored datafile, its revision
/// raised, so that everybody who reads it sees the same. The project is named by `X-Optimizely-SDK-Key`, and need
/// not be when there is only one; the first experiment of all makes the project `default`.
struct ExperimentEndpoints {
    let catalog: ProjectCatalog
    let projects: ProjectView

    func list(_ request: borrowing Request, _ call: Call) {
        do throws(Problem) {
            let project = try projects.project(named: request.field("x-optimizely-sdk-key"))
            let experiments = project.datafile.experimentsBesideRules.map { Self.describe($0, project) }
            let answer: JSONValue = ["experiments": .array(experiments)]
            call.answer(json: answer.encoded(), entityTag: project.entityTag)
        } catch {
            call.fail(error)
        }
    }

    func get(_ request: borrowing Request, _ call: Call) {
        do throws(Problem) {
            let project = try projects.project(named: request.field("x-optimizely-sdk-key"))
            let key = try Self.key(request)
            guard let experiment = project.datafile.experiment(key: Identifier(key)) else { throw Self.unknown(key) }
            call.answer(json: Self.describe(experiment, project).encoded(), entityTag: project.entityTag)
        } catch {
            call.fail(error)
        }
    }

    /// Makes an experiment, or changes what the body names of it; 201 if it is new.
    func put(_ request: borrowing Request, _ call: Call) {
        do throws(Problem) {
            let key = try Self.key(request)
            let content = request.withBody { Array($0) }
            let sdkKey = try sdkKey(request)
            let preconditions = Preconditions(request)
            let author = call.author(request)
            catalog.inBackground { [catalog] in
                Self.put(content, key, sdkKey, preconditions, author, catalog, call)
            }
        } catch {
            call.fail(error)
        }
    }

    private static func put(
        _ content: [UInt8], _ key: String, _ sdkKey: String, _ preconditions: Preconditions, _ author: Author,
        _ catalog: ProjectCatalog, _ call: Call
    ) {
        do throws(Problem) {
            let definition = try ExperimentDefinition(ProfileBody.parse(content), key: key)
            try checkSegments(definition, catalog.snapshot().schema)
            edit(catalog, sdkKey, .experimentPut, of: key, by: author, call) {
                editor, project throws(Problem) in
                let datafile = project?.datafile
                try preconditions.check(entityTag(of: key, project))
                try definition.apply(to: &editor, datafile)
                return datafile?.experiment(key: Identifier(key)) == nil ? .created : .ok
            } answer: { project, status in
                guard let experiment = project.datafile.experiment(key: Identifier(key)) else {
                    return call.fail(unknown(key))
                }
                call.answer(status, json: describe(experiment, project).encoded(), entityTag: project.entityTag)
            }
        } catch {
            call.fail(error)
        }
    }

    /// Archives an experiment: nobody is enrolled any more, assignments stay in the profiles, results stay readable.
    func delete(_ request: borrowing Request, _ call: Call) {
        do throws(Problem) {
            let key = try Self.key(request)
            let preconditions = Preconditions(request)
            Self.edit(catalog, try sdkKey(request), .experimentArchive, of: key, by: call.author(request), call) {
                editor, project throws(Problem) in
                try preconditions.check(Self.entityTag(of: key, project))
                guard var experiment = editor.experiment(key: Identifier(key)) else { throw Self.unknown(key) }
                experiment["status"] = .string(ExperimentDefinition.archived)
                editor.setExperiment(experiment)
                return .noContent
            } answer: { _, status in
                call.answer(Response(status))
            }
        } catch {
            call.fail(error)
        }
    }

    // MARK: Editing

    /// The tag with which an experiment is answered: that of the datafile it is in.
    private static func entityTag(of key: String, _ project: Project?) -> EntityTag? {
        project?.datafile.experiment(key: Identifier(key)) == nil ? nil : project?.entityTag
    }

    /// Edits the active datafile and activates the result, unless it is the same. When somebody else was quicker the
    /// edit is made again on theirs, so that none is lost. Works away from event loops, which a big datafile would hold
    /// up.
    ///
    /// - Parameter answer: takes the project as this edit left it, whatever others have made of it since.
    private static func edit(
        _ catalog: ProjectCatalog, _ sdkKey: String, _ action: AuditAction, of key: String, by author: Author,
        _ call: Call, tries: Int = 10,
        _ change: @escaping @Sendable (inout DatafileEditor, Project?) throws(Problem) -> Status,
        answer: @escaping @Sendable (Project, Status) -> Void
    ) {
        // What this process knows may be older than what another has stored.
        refresh(catalog, call) { snapshot in
            catalog.inBackground {
                edit(
                    snapshot.projects[sdkKey], catalog, sdkKey, action, of: key, by: author, call, tries: tries, change,
                    answer: answer)
            }
        }
    }

    private static func edit(
        _ project: Project?, _ catalog: ProjectCatalog, _ sdkKey: String, _ action: AuditAction, of key: String,
        by author: Author, _ call: Call, tries: Int,
        _ change: @escaping @Sendable (inout DatafileEditor, Project?) throws(Problem) -> Status,
        answer: @escaping @Sendable (Project, Status) -> Void
    ) {
        do throws(Problem) {
            var editor = project.map { DatafileEditor($0.datafile) } ?? DatafileEditor(projectID: sdkKey, sdkKey: sdkKey)
            let former = editor.value
            let status = try change(&editor, project)
            if let project, editor.value == former { return answer(project, status) }
            editor.raiseRevision()
            let content = editor.value.encoded()
            let edited = try Project.compile(editor.value)
            let note = AuditNote(
                action, of: key, before: detail(key, project?.datafile, sdkKey), after: detail(key, edited, sdkKey))
            catalog.store.putDatafile(
                content, sdkKey: sdkKey, revision: edited.revision, replacing: project?.version ?? 0, note: note, by: author
            ) { result in
                switch result {
                case .failure(let error): call.fail(error)
                case .success(nil) where tries == 0:
                    call.fail(Problem(.conflict, "others are changing the datafile; nothing was stored; try again"))
                case .success(nil):
                    edit(
                        catalog, sdkKey, action, of: key, by: author, call, tries: tries - 1, change, answer: answer)
                case .success(let stored?):
                    refresh(catalog, call) { _ in answer(Project(stored, edited), status) }
                }
            }
        } catch {
            call.fail(error)
        }
    }

    /// The experiment as the audit log tells of it.
    private static func detail(_ key: String, _ datafile: Datafile?, _ sdkKey: String) -> JSONValue {
        guard let datafile, let experiment = datafile.experiment(key: Identifier(key)) else { return .null }
        return ["experiment": experiment.description(sdkKey: sdkKey, revision: datafile.revision)]
    }

    private static func refresh(
        _ catalog: ProjectCatalog, _ call: Call, _ completion: @escaping @Sendable (ProjectCatalog.Snapshot) -> Void
    ) {
        catalog.refresh { result in
            switch result {
            case .success: completion(catalog.snapshot())
            case .failure(let error): call.fail(error)
            }
        }
    }

    /// The project to change, which may be yet to be made.
    private func sdkKey(_ request: borrowing Request) throws(Problem) -> String {
        if let named = request.field("x-optimizely-sdk-key") { return try SDKKey.check(named) }
        if catalog.snapshot().projects.isEmpty { return ProjectView.defaultKey }
        return try projects.project(named: nil).sdkKey
    }

    /// A segment that is not defined is most likely misspelt, and would admit nobody.
    private static func checkSegments(
        _ definition: ExperimentDefinition, _ schema: AttributeSchema
    ) throws(Problem) {
        guard let audience = definition.audience else { return }
        for name in Mentions(audience: audience).segments.sorted() where schema.segments[name] == nil {
            throw Problem(.unprocessableContent, "no segment has the name '\(name)'", at: ["audience"])
        }
    }

    private static func key(_ request: borrowing Request) throws(Problem) -> String {
        guard let text = request.parameter(0) else { throw Problem(.badRequest, "the key in the path must be UTF-8") }
        return try ExperimentDefinition.checkKey(text, at: nil)
    }

    private static func unknown(_ key: String) -> Problem {
        Problem(.notFound, "no experiment has the key '\(key)'")
    }

    private static func describe(_ experiment: Experiment, _ project: Project) -> JSONValue {
        experiment.description(sdkKey: project.sdkKey, revision: project.datafile.revision)
    }
}

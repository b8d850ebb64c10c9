import Bucketing
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// `/v1/flags`: flags without a datafile at hand. What is changed is the stored datafile, as for experiments.
struct FlagEndpoints {
    let catalog: ProjectCatalog
    let projects: ProjectView

    func list(_ request: borrowing Request, _ call: Call) throws(CoreError) {
        let project = try projects.project(named: request.field("x-optimizely-sdk-key"))
        let response: JSONValue = ["flags": .array(project.datafile.flags.map { Self.describe($0, project) })]
        call.respond(json: response.encoded(), entityTag: project.entityTag)
    }

    func get(_ request: borrowing Request, _ call: Call) throws(CoreError) {
        let project = try projects.project(named: request.field("x-optimizely-sdk-key"))
        let key = try request.key()
        guard let flag = project.datafile.flag(key: Identifier(key)) else { throw Self.unknown(key) }
        call.respond(json: Self.describe(flag, project).encoded(), entityTag: project.entityTag)
    }

    /// Creates a flag, or changes what the body names; 201 if it is new.
    func put(_ request: borrowing Request, _ call: Call) throws(CoreError) {
        let key = try request.key()
        let content = request.withBody { Array($0) }
        let sdkKey = try projects.sdkKeyToChange(request.field("x-optimizely-sdk-key"))
        let preconditions = Preconditions(request)
        let author = call.author(request)
        catalog.inBackground { [catalog] _ in
            call.attempt {
                let definition = try FlagDefinition(JSONInput.parse(content), key: key)
                try definition.checkSegments(catalog.snapshot().schema)
                ProjectEditor(catalog).edit(sdkKey, Self.note(.flagPut, key, sdkKey), by: author) {
                    editor, project throws(CoreError) in
                    try preconditions.check(Self.entityTag(of: key, project))
                    return try definition.apply(to: &editor, project?.datafile) ? Status.created : .ok
                } completion: { result in
                    call.attempt {
                        let (project, status) = try result.get()
                        guard let flag = project.datafile.flag(key: Identifier(key)) else { throw Self.unknown(key) }
                        call.respond(status, json: Self.describe(flag, project).encoded(), entityTag: project.entityTag)
                    }
                }
            }
        }
    }

    /// Removes a flag and archives its experiments, so that their results stay readable.
    func delete(_ request: borrowing Request, _ call: Call) throws(CoreError) {
        let key = try request.key()
        let sdkKey = try projects.sdkKeyToChange(request.field("x-optimizely-sdk-key"))
        let preconditions = Preconditions(request)
        ProjectEditor(catalog).edit(sdkKey, Self.note(.flagDelete, key, sdkKey), by: call.author(request)) {
            editor, project throws(CoreError) in
            try preconditions.check(Self.entityTag(of: key, project))
            try FlagDefinition.remove(key, from: &editor)
        } completion: { result in
            call.attempt {
                _ = try result.get()
                call.respond(Response(.noContent))
            }
        }
    }

    /// The tag of a flag is that of its datafile; `nil` if there is no such flag.
    private static func entityTag(of key: String, _ project: Project?) -> EntityTag? {
        project?.datafile.flag(key: Identifier(key)) == nil ? nil : project?.entityTag
    }

    private static func note(_ action: AuditAction, _ key: String, _ sdkKey: String) -> ProjectEditor.Note {
        ProjectEditor.Note(action, of: key) { datafile in
            guard let datafile, let flag = datafile.flag(key: Identifier(key)) else { return .null }
            return ["flag": flag.description(sdkKey: sdkKey, revision: datafile.revision)]
        }
    }

    private static func unknown(_ key: String) -> CoreError {
        CoreError(.notFound, "no flag has the key '\(key)'")
    }

    private static func describe(_ flag: Flag, _ project: Project) -> JSONValue {
        flag.description(sdkKey: project.sdkKey, revision: project.datafile.revision)
    }
}

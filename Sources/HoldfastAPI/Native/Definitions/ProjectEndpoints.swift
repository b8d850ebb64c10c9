import Bucketing
import Chronology
import Definitions
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// `/v1/projects`: the projects, and which one is the default for requests that name none.
struct ProjectEndpoints {
    let catalog: ProjectCatalog
    let projects: ProjectView

    /// The maximum number of projects on a server.
    private static let maximumProjects = 1_000

    func list(_ request: borrowing Request, _ call: Call) throws(CoreError) -> Response {
        let page = try ListPage(request)
        let listed = page.select(
            projects.records(for: call.access), key: { Identifier($0.sdkKey) }, texts: { [$0.name] })
        return JSONList("projects", listed) { [projects] in Self.describe($0, projects) }.response()
    }

    func get(_ request: borrowing Request, _ call: Call) throws(CoreError) -> Response {
        .json(Self.describe(try record(request, call), projects))
    }

    /// Creates a project, or changes its name, its lifetime of assignments, or whether it is the default; 201 if it is
    /// new.
    func put(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let sdkKey = try SDKKey.check(Self.key(request))
        try call.access.check(sdkKey)
        let value = try request.withBody { bytes throws(CoreError) in
            bytes.isEmpty ? [:] : try JSONInput.parse(bytes)
        }
        let known = projects.records(for: .all).first { $0.sdkKey == sdkKey }
        guard known != nil || projects.records(for: .all).count < Self.maximumProjects else {
            throw CoreError(.conflict, "at most \(Self.maximumProjects) projects may be made")
        }
        let settings = try ProjectSettings(value, sdkKey: sdkKey, isDefault: known?.isDefault ?? false)
        let lifetimeChange = try lifetimeChange(in: value, of: sdkKey)
        var approval: Approval?
        if settings.becomesDefault, known?.isDefault != true {
            approval = try approvalOfDefault(sdkKey, changesLifetime: lifetimeChange != nil, call)
        }
        let author = call.author(request)
        // The lifetime of an existing project is set first: if that needs an approval, nothing else is changed. A new
        // project must be made before its lifetime can be set.
        if known != nil, let lifetimeChange { try await make(lifetimeChange, of: sdkKey, by: author, call) }
        let result = try await catalog.putProject(settings, approval: approval, by: author)
        if known == nil, let lifetimeChange { try await make(lifetimeChange, of: sdkKey, by: author, call) }
        let status: Status = if case .created = result { .created } else { .ok }
        return .json(Self.describe(result.record, projects), status)
    }

    /// Checks that the caller may make a project the default.
    ///
    /// - Parameter changesLifetime: whether the request also changes the lifetime of assignments.
    /// - Returns: the approval by which the change is made; `nil` if it needs none.
    /// - Throws: 403 if the caller may not use the former default, and the errors of
    ///   ``ApprovalPolicy/checkDefault(_:insteadOf:changesMore:)``.
    private func approvalOfDefault(_ sdkKey: String, changesLifetime: Bool, _ call: Call) throws -> Approval? {
        guard let former = projects.records(for: .all).first(where: \.isDefault) else { return nil }
        // Changing the default affects requests to the former one, so the caller must be allowed to use it.
        try call.access.check(former.sdkKey)
        let isApproved = try call.approvalPolicy.checkDefault(
            sdkKey, insteadOf: projects.project(former.sdkKey), changesMore: changesLifetime)
        return isApproved ? call.admission.approval : nil
    }

    // MARK: Lifetime of assignments

    /// A change of the lifetime of a project's assignments.
    private struct LifetimeChange {
        /// The new lifetime; `nil` for the lifetime of the server.
        let lifetime: AssignmentLifetime?
    }

    /// Returns the change of the lifetime that a body requests; `nil` if the lifetime stays as it is.
    private func lifetimeChange(in body: JSONValue, of sdkKey: String) throws(CoreError) -> LifetimeChange? {
        guard let object = body.object, let lifetime = try AssignmentLifetime.change(in: object) else { return nil }
        let isUnchanged = lifetime == projects.project(sdkKey)?.datafile.assignmentLifetime
        return isUnchanged ? nil : LifetimeChange(lifetime: lifetime)
    }

    /// Changes the lifetime of the project's assignments.
    private func make(
        _ change: LifetimeChange, of sdkKey: String, by author: Author, _ call: Call
    ) async throws {
        let lifetime = change.lifetime
        let note = ProjectEditor.Note(.projectPut, of: sdkKey) { compiled in
            .object(JSONObject(.init(key: AssignmentLifetime.apiMember, value: Self.lifetime(compiled.datafile))))
        }
        let editor = ProjectEditor(catalog, call.approvalPolicy)
        _ = try await editor.edit(sdkKey, note, by: author, moves: .refuse) { definitions, _ throws(CoreError) in
            definitions.assignmentLifetime = lifetime
        }
    }

    private static func lifetime(_ datafile: Datafile?) -> JSONValue {
        (datafile?.assignmentLifetime).map { .string($0.text) } ?? .null
    }

    // MARK: Deleting

    /// Deletes an empty project.
    func delete(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let record = try record(request, call)
        guard let project = projects.project(record.sdkKey) else {
            throw CoreError(
                .conflict, "the datafile of the project '\(record.sdkKey)' must be usable on this server; it is not")
        }
        let contents = project.datafile.contents
        guard contents.isEmpty else {
            let list = contents.map { "\($0.count) \($0.name)" }.joined(separator: ", ")
            var refusal = CoreError(
                .conflict,
                "the project '\(record.sdkKey)' must be empty; it has \(list). To give them up, activate a datafile without them by PUT /v1/datafile"
            )
            var counts = JSONObject()
            for (name, count) in contents { counts[name] = .integer(Int64(count)) }
            refusal.members = [("contents", .object(counts))]
            throw refusal
        }
        switch try await catalog.removeProject(project, by: call.author(request)) {
        case .removed: return Response(.noContent)
        case .absent: throw CoreError(.notFound, "no project has the SDK key '\(record.sdkKey)'")
        case .isDefault:
            throw CoreError(
                .conflict,
                #"the project '\#(record.sdkKey)' is the default; first make another one the default by PUT {"default":true}"#
            )
        case .changed:
            throw CoreError(.conflict, "the project was changed during the request; it stays; try again")
        }
    }

    // MARK: Projects

    /// Returns the project in the path.
    private func record(_ request: borrowing Request, _ call: Call) throws(CoreError) -> ProjectRecord {
        let key = try Self.key(request)
        try call.access.check(key)
        return try catalog.snapshot().record(key)
    }

    private static func key(_ request: borrowing Request) throws(CoreError) -> String {
        guard let key = request.parameter(0) else {
            throw CoreError(.invalid, "the SDK key in the path must be UTF-8")
        }
        return key
    }

    private static func describe(_ record: ProjectRecord, _ projects: ProjectView) -> JSONValue {
        describe(record, projects.project(record.sdkKey))
    }

    /// - Parameter project: `nil` if this server cannot use its datafile.
    private static func describe(_ record: ProjectRecord, _ project: Project?) -> JSONValue {
        let datafile = project?.datafile
        return [
            "sdk_key": .string(record.sdkKey), "name": .string(record.name), "default": .bool(record.isDefault),
            "created_at": .string(record.createdAt.rfc3339),
            "revision": datafile.map { .string($0.revision) } ?? .null,
            "experiments": datafile.map { .integer(Int64($0.experimentsBesideRules.count)) } ?? .null,
            "flags": datafile.map { .integer(Int64($0.flags.count)) } ?? .null,
            AssignmentLifetime.apiMember: lifetime(datafile),
        ]
    }
}

extension ProjectSettings {
    /// Reads the body of a `PUT`. Members that only `GET` has are ignored.
    ///
    /// - Parameter isDefault: whether the project is the default already.
    init(_ value: JSONValue, sdkKey: String, isDefault: Bool) throws(CoreError) {
        let object = try value.object(
            "a project",
            knowing: [
                "sdk_key", "name", "default", "created_at", "revision", "experiments", "flags",
                AssignmentLifetime.apiMember,
            ])
        if let given = try object.optionalText("sdk_key"), given != sdkKey {
            throw CoreError(
                .invalid, "`sdk_key` must be the key in the path, '\(sdkKey)'; got '\(given)'", at: ["sdk_key"])
        }
        let name = try object.optionalText("name")
        if let name, name.utf8.count > 255 || name.utf8.contains(where: { $0 < 0x20 }) {
            throw CoreError(
                .invalid, "`name` must be at most 255 bytes without control characters; got \(name.utf8.count) bytes",
                at: ["name"])
        }
        let given = object["default"] ?? .bool(isDefault)
        guard let wanted = given.bool else {
            throw CoreError(.invalid, "`default` must be true or false; got \(given.kind)", at: ["default"])
        }
        if isDefault, !wanted {
            throw CoreError(
                .conflict, "`default` must stay true; make another project the default instead", at: ["default"])
        }
        self.init(sdkKey: sdkKey, name: name, becomesDefault: wanted)
    }
}

import Bucketing
import Chronology
import Definitions
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// `/v1/datafile` for admins: activates a datafile, and shows the former ones. The routes from which
/// clients read the active datafile are in `OptimizelyAgent/AgentConfig.swift`.
struct DatafileEndpoints {
    let catalog: ProjectCatalog
    let store: any StoreSession
    let projects: ProjectView
    let clock: StoreClock

    /// Activates a datafile after checking it as a whole; an invalid one changes nothing. If the datafile concludes
    /// experiments, their results are frozen in the same transaction.
    ///
    /// The header names the project. Without the header, the SDK key in the datafile names it. Without both, it is the
    /// default project.
    func put(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let uploaded = request.withBody { Array($0) }
        let query = try request.query(knowing: ["moves", "share"])
        let moves = try Request.movePolicy(query)
        let sharing = try Request.sharePolicy(query, call)
        let preconditions = Preconditions(request)
        let author = call.author(request)
        let accepted = try await catalog.inBackground { _ in try Datafile.accepted(uploaded) }
        let snapshot = catalog.snapshot()
        let sdkKey = try snapshot.sdkKeyToChange(request.sdkKey ?? accepted.sdkKey, for: call.access)
        let former = snapshot.projects[sdkKey]
        // Datafiles of other products have no lifetime of assignments. The project keeps the one that it has.
        let (content, compiled) = try await catalog.inBackground { _ in
            let given = CompiledDefinitions(accepted)
            let completed = try given.completed(with: former?.datafile.assignmentLifetime)
            return completed.map { ($0.definitions.content, $0) } ?? (uploaded, given)
        }
        let upload = Upload(sdkKey: sdkKey, former: former, content: content, compiled: compiled, snapshot: snapshot)
        try preconditions.check(former?.entityTag)
        let policy = call.approvalPolicy
        let notes = try await check(upload, policy, moves)
        let stored = try await activate(
            upload, policy, sharing, isConditional: !preconditions.isEmpty, notes: notes, by: author)
        guard let stored else {
            throw CoreError(
                .preconditionFailed, "the datafile was changed during the request; nothing was stored; try again")
        }
        try await catalog.refresh()
        return .json(Self.summary(stored, compiled.datafile), former == nil ? .created : .ok)
    }

    /// A datafile to activate.
    private struct Upload: Sendable {
        let sdkKey: String
        /// The project that has the SDK key; `nil` if the datafile makes the project.
        let former: Project?
        let content: [UInt8]
        let compiled: CompiledDefinitions
        /// The definitions of all projects, with which the datafile is compared.
        let snapshot: ProjectCatalog.Snapshot
    }

    /// Checks that a required approval is given, and that no enrolled user would get another variation, unless `moves`
    /// allows that.
    ///
    /// - Returns: the entries of the audit log for the change.
    private func check(
        _ upload: Upload, _ policy: ApprovalPolicy, _ moves: ProjectEditor.MovePolicy
    ) async throws -> [AuditNote] {
        try await policy.expectUnchanged(upload.former, store)
        if let former = upload.former { try await PreviewCounter(catalog).check(former, to: upload.compiled, moves) }
        return try await catalog.inBackground { _ in
            try policy.check(from: upload.former, to: upload.compiled, [AuditNote(.datafilePut, of: upload.sdkKey)])
        }
    }

    /// Stores a datafile, which is active from then on.
    ///
    /// - Parameter isConditional: whether the request has conditions on the former datafile.
    /// - Returns: `nil` if the former datafile was replaced during the request.
    private func activate(
        _ upload: Upload, _ policy: ApprovalPolicy, _ sharing: SharePolicy, isConditional: Bool, notes: [AuditNote],
        by author: Author
    ) async throws -> StoredDatafile? {
        let now = clock.now()
        let needsNoApproval = if case .notNeeded = policy { true } else { false }
        return try await catalog.inBackground { session in
            let former = upload.former
            let datafile = upload.compiled.datafile
            let definitions = upload.compiled.definitions
            let newest = try upload.snapshot.checkIDs(
                of: datafile, replacing: former?.datafile, in: upload.sdkKey, sharing)
            let completed = try await UploadedDatafile(
                upload.content, definitions, replacing: former, at: now, session)
            // An approval, the conditions and the frozen results depend on the former datafile, which must then still
            // be active. Without them, the new datafile replaces whichever one is active.
            let replacesAny = needsNoApproval && !isConditional && completed.freezes.isEmpty
            return try await session.write(
                .putDatafile(
                    .whole(completed.content), sdkKey: upload.sdkKey, revision: datafile.revision,
                    allocations: AllocationRules.allocations(in: datafile),
                    statuses: StatusRules.statuses(in: datafile), series: definitions.series,
                    replacing: replacesAny ? nil : former?.version ?? 0, among: newest, freezing: completed.freezes,
                    makesProject: false, approval: policy.approval, notes: notes, by: author))
        }
    }

    /// Returns the response to an upload: the numbers of elements, and warnings.
    private static func summary(_ stored: StoredDatafile, _ datafile: Datafile) -> JSONValue {
        var summary = JSONObject()
        summary["sdk_key"] = .string(stored.sdkKey)
        summary["revision"] = .string(datafile.revision)
        summary["version"] = .integer(stored.version)
        summary["experiments"] = .integer(Int64(datafile.experiments.count))
        summary["flags"] = .integer(Int64(datafile.flags.count))
        let warnings = datafile.warnings
        if !warnings.isEmpty { summary["warnings"] = .array(warnings.map { .string($0) }) }
        return .object(summary)
    }

    // MARK: History

    /// Responds with the datafiles that were active, newest first. Each has its version, revision and time, and the
    /// name of the token that activated it. The default of `?limit=N` is 100.
    func history(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let limit = try Request.pageLimit(request.query(knowing: ["limit"]))
        let sdkKey = try projects.project(named: request.sdkKey, for: call.access).sdkKey
        let history = try await store.read(.datafileHistory(sdkKey: sdkKey, limit: limit))
        return .json(Self.describe(history, sdkKey))
    }

    /// Responds with the content of one datafile of the history.
    func version(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let version = try Request.datafileVersion(request.parameter(0), "the version in the path")
        let sdkKey = try projects.project(named: request.sdkKey, for: call.access).sdkKey
        guard let stored = try await store.read(.datafile(sdkKey: sdkKey, version: version)) else {
            throw CoreError(
                .notFound, "the project '\(sdkKey)' has no datafile of version \(version), or keeps it no longer")
        }
        let content = stored.content
        return .json(content, entityTag: EntityTag(of: content))
    }

    private static func describe(_ history: [StoredDatafile], _ sdkKey: String) -> JSONValue {
        let entries = history.map { stored -> JSONValue in
            [
                "version": .integer(stored.version), "revision": .string(stored.revision),
                "stored_at": .string(stored.storedAt.rfc3339), "author": .string(stored.author),
            ]
        }
        return ["sdk_key": .string(sdkKey), "datafiles": .array(entries)]
    }
}

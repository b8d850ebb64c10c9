import Bucketing
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// `/v1/datafile` for admins. The routes that the Agent's clients read are in `OptimizelyAgent/AgentConfig.swift`.
struct DatafileEndpoints {
    let services: Services
    let store: any ProjectStore
    let projects: ProjectView

    /// Activates a datafile after checking it as a whole; an unusable one changes nothing. The project is that of the
    /// header, else of the datafile's own SDK key, else the default.
    func put(_ request: borrowing Request, _ call: Call) throws(CoreError) {
        try call.requireUpToDate()
        let content = request.withBody { Array($0) }
        let named = request.sdkKey
        let moves = try request.movePolicy()
        let preconditions = Preconditions(request)
        let author = call.author(request)
        services.projects.inBackground { [catalog = services.projects] _ in
            call.attempt {
                let datafile = try Project.accept(content)
                let snapshot = catalog.snapshot()
                let sdkKey = try snapshot.sdkKeyToChange(named ?? datafile.sdkKey)
                let former = snapshot.projects[sdkKey]
                try preconditions.check(former?.entityTag)
                @Sendable func store() {
                    Self.put(content, datafile, sdkKey, replacing: former, preconditions, author, catalog, call)
                }
                guard let former else { return store() }
                PreviewCounter(catalog).check(former, to: datafile, moves) { result in
                    call.attempt {
                        try result.get()
                        store()
                    }
                }
            }
        }
    }

    private static func put(
        _ content: [UInt8], _ datafile: Datafile, _ sdkKey: String, replacing former: Project?,
        _ preconditions: Preconditions, _ author: Author, _ catalog: ProjectCatalog, _ call: Call
    ) {
        catalog.inBackground { session in
            session.putDatafile(
                content, sdkKey: sdkKey, revision: datafile.revision,
                allocations: AllocationRules.allocations(in: datafile),
                replacing: preconditions.isEmpty ? nil : former?.version ?? 0, makesProject: false,
                note: AuditNote(.datafilePut, of: sdkKey), by: author
            ) { result in
                switch result {
                case .success(nil):
                    call.fail(
                        CoreError(
                            .preconditionFailed,
                            "the datafile was changed during the request; nothing was stored; try again"))
                case .success(let stored):
                    catalog.respond(call, former == nil ? .created : .ok, summary(stored, datafile))
                case .failure(let error): call.fail(error)
                }
            }
        }
    }

    private static func summary(_ stored: StoredDatafile?, _ datafile: Datafile) -> JSONValue {
        var summary = JSONObject()
        summary["sdk_key"] = .string(stored?.sdkKey ?? "")
        summary["revision"] = .string(datafile.revision)
        summary["version"] = .integer(stored?.version ?? 0)
        summary["experiments"] = .integer(Int64(datafile.experiments.count))
        summary["flags"] = .integer(Int64(datafile.flags.count))
        let warnings = datafile.warnings
        if !warnings.isEmpty { summary["warnings"] = .array(warnings.map { .string($0) }) }
        return .object(summary)
    }

    /// The datafiles that were active, newest first: revision, time, and the token that stored it. `?limit=N`, by
    /// default 100.
    func history(_ request: borrowing Request, _ call: Call) throws(CoreError) {
        let limit = try Request.pageLimit(request.query(knowing: ["limit"]))
        let sdkKey = try projects.project(named: request.sdkKey).sdkKey
        store.datafileHistory(sdkKey: sdkKey, limit: limit) { result in
            switch result {
            case .success(let history): call.respond(json: Self.describe(history, sdkKey))
            case .failure(let error): call.fail(error)
            }
        }
    }

    /// The content of one datafile of the history.
    func version(_ request: borrowing Request, _ call: Call) throws(CoreError) {
        guard let text = request.parameter(0), let version = Int64(text), version > 0 else {
            throw CoreError(.invalid, "the version in the path must be a whole number of at least 1")
        }
        let sdkKey = try projects.project(named: request.sdkKey).sdkKey
        store.datafile(sdkKey: sdkKey, version: version) { result in
            switch result {
            case .success(let stored?):
                let tag = stored.content.withUnsafeBytes { EntityTag(hashing: $0) }
                call.respond(json: stored.content, entityTag: tag)
            case .success(nil):
                call.fail(
                    CoreError(
                        .notFound,
                        "the project '\(sdkKey)' has no datafile of version \(version), or keeps it no longer"))
            case .failure(let error): call.fail(error)
            }
        }
    }

    private static func describe(_ history: [StoredDatafile], _ sdkKey: String) -> [UInt8] {
        let entries = history.map { stored -> JSONValue in
            [
                "version": .integer(stored.version), "revision": .string(stored.revision),
                "stored_at": .string(stored.storedAt.rfc3339), "author": .string(stored.author),
            ]
        }
        let response: JSONValue = ["sdk_key": .string(sdkKey), "datafiles": .array(entries)]
        return response.encoded()
    }
}

extension ProjectCatalog {
    /// Responds once this process uses what has been stored.
    func respond(_ call: Call, _ status: Status, _ json: JSONValue?) {
        refresh { result in
            switch result {
            case .success:
                if let json { call.respond(status, json: json.encoded()) } else { call.respond(Response(status)) }
            case .failure(let error): call.fail(error)
            }
        }
    }
}

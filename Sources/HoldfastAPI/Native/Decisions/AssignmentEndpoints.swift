import Bucketing
import Chronology
import Definitions
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// `/v1/profiles/{user_id}/experiments/{experiment}`: one assignment of a user.
///
/// `PUT` sets an override: a variation that an admin chooses. The override stays until it expires or an admin removes
/// it, even if app servers save other variations meanwhile. Then the underlying assignment applies again.
///
/// The path names the experiment by its key or its id. A name that no active datafile has is taken as an id.
struct AssignmentEndpoints {
    let store: any StoreSession
    let projects: ProjectView
    let clock: StoreClock

    /// Responds with the assignment; 404 if there is none.
    func get(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let userID = try request.userID()
        let experiment = try experiment(try Self.name(request), call)
        let profile = try await completed { store.profile(of: userID, $0) }
        if profile?[experiment.id] == nil, experiment.definitions.isEmpty {
            // The name may be the key of an experiment that another server has just created.
            try call.requireUpToDate()
        }
        return try Self.response(profile, experiment)
    }

    /// Sets an override. Responds with the assignment.
    func put(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let userID = try request.userID()
        let experiment = try experimentToChange(request, call)
        try checkSpelling(of: experiment, request, call)
        let operation = try request.withBody { bytes throws(CoreError) in
            try Self.override(JSONInput.parse(bytes), of: experiment, at: clock.now())
        }
        let change = ProfileChange(
            userID: userID, operation: operation, condition: Self.condition(request, of: experiment))
        let author = call.author(request)
        let result = try await completed { store.submit(change, by: author, $0) }
        return try Self.response(result.profile, experiment)
    }

    /// Removes the assignment. If there is an override, removes only the override, so that the underlying assignment
    /// applies again; this requires an admin.
    ///
    /// - Throws: 409 if there is an override, and the caller is not an admin.
    func delete(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let userID = try request.userID()
        let experiment = try experimentToChange(request, call)
        let condition = Self.condition(request, of: experiment)
        let keepsOverride = !call.mayRemoveOverrides
        var removal = ProfileChange(
            userID: userID, operation: .remove(experimentID: experiment.id), condition: condition)
        if keepsOverride {
            // Checked in the transaction of the change, because an admin may set an override meanwhile.
            removal.condition = { profile in
                profile?[experiment.id]?.source != .override && condition?(profile) ?? true
            }
        }
        let author = call.author(request)
        let change = removal
        let result = await settled { store.submit(change, by: author, $0) }
        if keepsOverride, case .failure(.conditionFailed) = result {
            // The failed condition is either that of the caller, or that there is no override.
            let profile = try await completed { store.profile(of: userID, $0) }
            guard profile?[experiment.id]?.source == .override else { throw StorageError.conditionFailed }
            throw CoreError(
                .conflict, "the assignment must not be an override, which only an admin removes; nothing was removed")
        }
        guard try result.get().changed else {
            throw CoreError(.notFound, "the user has no assignment in this experiment")
        }
        return Response(.noContent)
    }

    // MARK: The experiment

    /// Returns the key or id in the path.
    private static func name(_ request: borrowing Request) throws(CoreError) -> String {
        guard let name = request.parameter(1) else {
            throw CoreError(.invalid, "the experiment in the path must be UTF-8")
        }
        return name
    }

    /// Returns the experiment in the path: the one with this key, or else with this id.
    ///
    /// - Throws: 400 if the name is not a key and cannot be an id; 403 if the caller may not use any of the projects
    ///   that have the experiment; 409 if several projects have the key for different ids.
    private func experiment(_ name: String, _ call: Call) throws(CoreError) -> NamedExperiment {
        let ids = Set(try projects.experiments(key: Identifier(name), for: call.access).map(\.id))
        guard ids.count <= 1 else {
            let list = ids.map(\.string).sorted().joined(separator: ", ")
            throw CoreError(
                .conflict, "several projects have an experiment with the key '\(name)'; name it by its id: \(list)")
        }
        let id: Identifier
        if let known = ids.first { id = known } else { id = try NameRule.checkExperimentID(name, at: nil) }
        return NamedExperiment(id: id, definitions: try projects.experiments(id: id, for: call.access))
    }

    /// Returns the experiment of a change. If its name is unknown here, the newest definitions are read first: the name
    /// may be the key of an experiment that another server has just created, and must then not be used as an id.
    private func experimentToChange(_ request: borrowing Request, _ call: Call) throws(CoreError) -> NamedExperiment {
        let name = try Self.name(request)
        let experiment = try experiment(name, call)
        guard call.isUpToDate || !experiment.definitions.isEmpty else {
            throw .undefined("no experiment has the key or id '\(name)'")
        }
        return experiment
    }

    // MARK: The override

    /// Checks that the name in the path is not a misspelt key, which would become the id of an unknown experiment.
    ///
    /// - Throws: 404 if the name is unknown but similar to a known key, unless the query has `unknown=allow`.
    private func checkSpelling(
        of experiment: NamedExperiment, _ request: borrowing Request, _ call: Call
    ) throws(CoreError) {
        let unknown = try request.query(knowing: ["unknown"])["unknown"]
        guard unknown == nil || unknown == "allow" else {
            throw CoreError(.invalid, "`unknown` must be allow; got '\(unknown ?? "")'")
        }
        guard unknown == nil, experiment.definitions.isEmpty else { return }
        let projects = try projects.projects(sdkKey: nil, projectID: nil, for: call.access)
        let keys = projects.lazy.flatMap { $0.datafile.experiments.map(\.key.string) }
        if let key = Spelling.misspelt(experiment.id.string, among: keys) {
            throw CoreError(
                .notFound,
                "no experiment has the key or id '\(experiment.id)'; did you mean '\(key)'? ?unknown=allow sets the override of an "
                    + "id that no datafile has")
        }
    }

    /// Parses `{"variation_id":…,"reason"?,"expires_at"?}`. There may be `variation_key` instead of `variation_id`.
    private static func override(
        _ body: JSONValue, of experiment: NamedExperiment, at now: Instant
    ) throws(CoreError) -> ProfileChange.Operation {
        let object = try body.object(
            "an override", knowing: ["variation_id", "variation_key", "reason", "expires_at"])
        let expiresAt = try object.optionalTime("expires_at")
        if let expiresAt, expiresAt <= now {
            throw CoreError(
                .invalid, "`expires_at` must be in the future; got '\(expiresAt.rfc3339)'", at: ["expires_at"])
        }
        return .override(
            experimentID: experiment.id, variationID: try variationID(object, of: experiment),
            reason: try ProfileInput.reason(of: object), expiresAt: expiresAt)
    }

    /// Returns the variation that `variation_id` or `variation_key` names. All datafiles that have the experiment must
    /// have the variation, too.
    private static func variationID(
        _ object: JSONObject, of experiment: NamedExperiment
    ) throws(CoreError) -> Identifier {
        if let key = try object.optionalText("variation_key") {
            guard object["variation_id"] == nil else {
                throw CoreError(
                    .invalid, "either `variation_id` or `variation_key` is required; got both", at: ["variation_key"])
            }
            for definition in experiment.definitions {
                if let variation = definition.variation(key: Identifier(key)) { return variation.id }
            }
            throw unknownVariation(experiment, at: ["variation_key"])
        }
        guard let variation = object["variation_id"] else {
            throw CoreError(
                .invalid, "either `variation_id` or `variation_key` is required; got neither", at: ["variation_id"])
        }
        let variationID = try ProfileInput.variationID(variation, at: ["variation_id"])
        guard experiment.definitions.isEmpty || experiment.variation(id: variationID) != nil else {
            throw unknownVariation(experiment, at: ["variation_id"])
        }
        return variationID
    }

    /// Returns the error for a variation that the experiment does not have. It lists the experiment's variations.
    private static func unknownVariation(_ experiment: NamedExperiment, at pointer: JSONPointer) -> CoreError {
        guard !experiment.definitions.isEmpty else {
            return CoreError(
                .unprocessable, "no datafile has this experiment; name the variation by its `variation_id`",
                at: pointer)
        }
        let variations = experiment.definitions.flatMap(\.variations)
        let list = variations.map { "\($0.key) (id \($0.id))" }.joined(separator: ", ")
        var error = CoreError(
            .unprocessable, "the variation must be one of the experiment's: \(list)", at: pointer,
            mayBeStale: true)
        error.members = [
            (
                "variations",
                .array(variations.map { ["id": .string($0.id.string), "key": .string($0.key.string)] })
            )
        ]
        return error
    }

    // MARK: Conditions and responses

    /// Returns the condition of `If-Match` and `If-None-Match` of a change.
    private static func condition(
        _ request: borrowing Request, of experiment: NamedExperiment
    ) -> ProfileChange.Condition? {
        Preconditions(request).condition { profile in
            profile?[experiment.id].map { [EntityTag(of: experiment.encode($0))] } ?? []
        }
    }

    /// - Throws: 404 if the profile has no assignment in the experiment.
    private static func response(
        _ profile: ProfileRecord?, _ experiment: NamedExperiment
    ) throws(CoreError) -> Response {
        guard let assignment = profile?[experiment.id] else {
            throw CoreError(.notFound, "the user has no assignment in this experiment")
        }
        let json = experiment.encode(assignment)
        return .json(json, entityTag: EntityTag(of: json))
    }
}

/// An experiment that a request names.
private struct NamedExperiment: Sendable {
    let id: Identifier
    /// The definitions in the active datafiles of all projects that have the experiment.
    let definitions: [Experiment]

    /// Encodes an assignment in the experiment, with its source and times, as an object of its own.
    func encode(_ assignment: Assignment) -> [UInt8] {
        var writer = JSONWriter()
        writer.beginObject()
        writer.member("experiment_id", id.string)
        writer.member("experiment_key", definitions.first?.key.string)
        writer.member("variation_id", assignment.variationID.string)
        writer.member("variation_key", variation(id: assignment.variationID)?.key.string)
        ProfileJSON.appendOrigin(assignment, to: &writer)
        writer.member("known", !definitions.isEmpty)
        writer.endObject()
        return writer.finish()
    }

    func variation(id: Identifier) -> Variation? {
        for definition in definitions {
            if let variation = definition.variation(id: id) { return variation }
        }
        return nil
    }
}

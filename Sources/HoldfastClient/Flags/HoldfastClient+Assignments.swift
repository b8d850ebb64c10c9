/// The variation of a user in one experiment.
public struct ExperimentAssignment: Sendable, Hashable, Codable {
    public let experimentID: String
    public let experimentKey: String
    /// Id of the variation; `nil` if the user is not enrolled.
    public let variationID: String?
    /// Key of the variation; `nil` if the user is not enrolled.
    public let variationKey: String?
    /// Source of the decision: `override`, `whitelist`, `stored`, `bucketed`, `holdout` or `none`.
    public let source: String

    private enum CodingKeys: String, CodingKey {
        case experimentID = "experiment_id"
        case experimentKey = "experiment_key"
        case variationID = "variation_id"
        case variationKey = "variation_key"
        case source
    }
}

/// Assignments in experiments, from the server (`/v1/assign`).
extension HoldfastClient {
    private struct AssignRequest: Encodable {
        var userID: String
        var anonymousID: String?
        var experiment: String
        var attributes: [String: UserAttributeValue]
        var sdkKey: String?

        private enum CodingKeys: String, CodingKey {
            case userID = "user_id"
            case anonymousID = "anonymous_id"
            case experiment, attributes
            case sdkKey = "sdk_key"
        }
    }

    /// Returns the user's variation in an experiment, which the server assigns and stores if there is none yet. Sends a
    /// request each time, and reports no exposure.
    ///
    /// - Parameters:
    ///   - experiment: key or id of the experiment.
    ///   - user: by default the current user.
    /// - Throws: ``HoldfastError``: ``HoldfastError/notInitialized`` without a user,
    ///   ``HoldfastError/refused(status:detail:pointer:)`` with 404 for an unknown experiment.
    public func assignment(
        experiment: String, user: HoldfastUser? = nil
    ) async throws(HoldfastError) -> ExperimentAssignment {
        guard !core.isDestroyed else { throw .destroyed }
        guard let user = user ?? flags.user else { throw .notInitialized }
        try HoldfastUser.check(id: user.id)
        core.noteAnonymousUse(of: user.id)
        let body = try HoldfastServer.encode(
            AssignRequest(
                userID: user.id, anonymousID: core.anonymousID(joining: user.id), experiment: experiment,
                attributes: user.attributes, sdkKey: core.configuration.sdkKey))
        return try decodeAssignment(try await core.server.send("POST", "v1/assign", body: body))
    }

    /// Returns the variation that the user has or would get. The server stores no assignment.
    func previewAssignment(
        experiment: String, user: HoldfastUser
    ) async throws(HoldfastError) -> ExperimentAssignment {
        guard !core.isDestroyed else { throw .destroyed }
        try HoldfastUser.check(id: user.id)
        var query = ["user_id": user.id, "experiment": experiment]
        query["sdk_key"] = core.configuration.sdkKey
        if !user.attributes.isEmpty {
            query["attributes"] = String(decoding: try HoldfastServer.encode(user.attributes), as: UTF8.self)
        }
        return try decodeAssignment(try await core.server.send("GET", "v1/assign", query: query))
    }

    /// Reads the response to a request for an assignment.
    ///
    /// - Throws: ``HoldfastError/unknownProject(detail:)`` for a 404 without a pointer, other errors by the status.
    private func decodeAssignment(_ response: HoldfastServer.Response) throws(HoldfastError) -> ExperimentAssignment {
        do throws(HoldfastError) {
            try HoldfastServer.check(response)
        } catch .refused(404, let detail, nil) where Problem(response)?.isOfUnknownPath == false {
            // Without a pointer the project is unknown: for an unknown experiment the server names the member.
            throw .unknownProject(detail: detail)
        }
        return try HoldfastServer.decode(ExperimentAssignment.self, response.body)
    }
}

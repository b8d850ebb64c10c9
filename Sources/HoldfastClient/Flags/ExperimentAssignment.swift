/// The variation of a user in one experiment.
public struct ExperimentAssignment: Sendable, Hashable, Codable {
    public let experimentID: String
    public let experimentKey: String
    /// `nil` for a user who does not take part.
    public let variationID: String?
    public let variationKey: String?
    /// Where the variation comes from: `override`, `whitelist`, `stored`, `bucketed`, `holdout` or `none`.
    public let source: String

    private enum CodingKeys: String, CodingKey {
        case experimentID = "experiment_id"
        case experimentKey = "experiment_key"
        case variationID = "variation_id"
        case variationKey = "variation_key"
        case source
    }
}

extension HoldfastClient {
    private struct AssignRequest: Encodable {
        var userID: String
        var experiment: String
        var attributes: [String: AttributeValue]
        var sdkKey: String?

        private enum CodingKeys: String, CodingKey {
            case userID = "user_id"
            case experiment, attributes
            case sdkKey = "sdk_key"
        }
    }

    /// The variation of a user in an experiment: the one the user has, or one that the server gives now and keeps.
    /// Asks the server each time, and reports no exposure.
    ///
    /// - Parameters:
    ///   - experiment: its key or id.
    ///   - user: by default the current one.
    /// - Throws: ``HoldfastError``: ``HoldfastError/notInitialized`` where there is no user,
    ///   ``HoldfastError/refused(status:detail:pointer:)`` with 404 where there is no such experiment.
    public func assignment(
        experiment: String, user: HoldfastUser? = nil
    ) async throws(HoldfastError) -> ExperimentAssignment {
        guard !core.isDestroyed else { throw .destroyed }
        guard let user = user ?? flags.user else { throw .notInitialized }
        try HoldfastUser.check(id: user.id)
        let body = try HoldfastServer.encode(
            AssignRequest(
                userID: user.id, experiment: experiment, attributes: user.attributes, sdkKey: core.configuration.tag))
        let answer = try await core.server.request("POST", "v1/assign", body: body)
        return try HoldfastServer.decode(ExperimentAssignment.self, answer.body)
    }
}

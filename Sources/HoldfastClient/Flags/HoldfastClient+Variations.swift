extension HoldfastClient {
    /// Returns whether a flag is on; with a `variable`, the value of that variable if it is a boolean.
    ///
    /// - Returns: `defaultValue` if the flag or variable is unknown or has another type.
    public func boolVariation(flagKey: String, variable: String? = nil, defaultValue: Bool) -> Bool {
        guard let details = use(flagKey) else { return defaultValue }
        guard let variable else { return details.isEnabled }
        return details.variables[variable]?.boolValue ?? defaultValue
    }

    /// Returns the key of a flag's variation; with a `variable`, the value of that variable if it is a string.
    ///
    /// - Returns: `defaultValue` as in ``boolVariation(flagKey:variable:defaultValue:)``, and without a variation.
    public func stringVariation(flagKey: String, variable: String? = nil, defaultValue: String) -> String {
        guard let details = use(flagKey) else { return defaultValue }
        guard let variable else { return details.variationKey ?? defaultValue }
        return details.variables[variable]?.stringValue ?? defaultValue
    }

    /// Returns the value of an integer variable; without a `variable`, of the flag's only number variable.
    ///
    /// - Returns: `defaultValue` as in ``boolVariation(flagKey:variable:defaultValue:)``.
    public func intVariation(flagKey: String, variable: String? = nil, defaultValue: Int) -> Int {
        number(flagKey, variable)?.intValue ?? defaultValue
    }

    /// Returns the value of a number variable; without a `variable`, of the flag's only number variable.
    ///
    /// - Returns: `defaultValue` as in ``boolVariation(flagKey:variable:defaultValue:)``.
    public func doubleVariation(flagKey: String, variable: String? = nil, defaultValue: Double) -> Double {
        number(flagKey, variable)?.doubleValue ?? defaultValue
    }

    /// Returns all variables of a flag as an object; with a `variable`, the value of that variable.
    ///
    /// - Returns: `defaultValue` as in ``boolVariation(flagKey:variable:defaultValue:)``.
    public func jsonVariation(flagKey: String, variable: String? = nil, defaultValue: HoldfastValue) -> HoldfastValue {
        guard let details = use(flagKey) else { return defaultValue }
        guard let variable else { return .object(details.variables) }
        return details.variables[variable] ?? defaultValue
    }

    /// Returns the evaluation of a flag for the current user. Reports no exposure.
    ///
    /// - Returns: `nil` if the flag is unknown or not fetched yet.
    public func evaluationDetails(flagKey: String) -> EvaluationDetails? {
        flags.evaluations?[flagKey]?.details
    }

    /// All evaluations of the current user. Reports no exposure.
    public var allEvaluationDetails: [EvaluationDetails] {
        flags.evaluations?.content.evaluations ?? []
    }

    private func number(_ flagKey: String, _ variable: String?) -> HoldfastValue? {
        guard let flag = usedFlag(flagKey) else { return nil }
        return variable.map { flag.details.variables[$0] } ?? flag.number
    }

    @inline(__always)
    private func use(_ flagKey: String) -> EvaluationDetails? {
        usedFlag(flagKey)?.details
    }

    /// Returns a flag and reports the exposure on the first use.
    @inline(__always)
    private func usedFlag(_ flagKey: String) -> Evaluations.Flag? {
        guard let evaluations = flags.evaluations, let flag = evaluations[flagKey] else { return nil }
        if flag.takeReport() { report(flag, evaluations.content.userID) }
        return flag
    }

    /// Reports the exposure to a flag on its first use.
    func reportUse(flagKey: String) {
        _ = usedFlag(flagKey)
    }

    private func report(_ flag: Evaluations.Flag, _ userID: String) {
        guard let experimentID = flag.details.experimentID else { return }
        reportExposure(experiment: experimentID, variationID: flag.details.variationID, userID: userID)
    }
}

/// The variation of a user in one experiment.
public struct ExperimentAssignment: Sendable, Hashable, Codable {
    public let experimentID: String
    public let experimentKey: String
    /// `nil` if the user does not take part.
    public let variationID: String?
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

extension HoldfastClient {
    private struct AssignRequest: Encodable {
        var userID: String
        var experiment: String
        var attributes: [String: UserAttributeValue]
        var sdkKey: String?

        private enum CodingKeys: String, CodingKey {
            case userID = "user_id"
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
        let body = try HoldfastServer.encode(
            AssignRequest(
                userID: user.id, experiment: experiment, attributes: user.attributes, sdkKey: core.configuration.sdkKey))
        let response = try await core.server.request("POST", "v1/assign", body: body)
        return try HoldfastServer.decode(ExperimentAssignment.self, response.body)
    }
}

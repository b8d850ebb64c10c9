extension HoldfastClient {
    /// Returns the value of a flag's variation as a boolean: `true` or `on`, `false` or `off`. See
    /// ``EvaluationDetails/variationValue`` for what the value is, and ``isEnabled(flagKey:defaultValue:)``.
    ///
    /// - Parameter variable: reads this variable of the flag instead.
    /// - Returns: `defaultValue` if the flag is unknown or not fetched yet, the user has no variation, or the value has
    ///   another type.
    public func boolVariation(flagKey: String, variable: String? = nil, defaultValue: Bool) -> Bool {
        guard let flag = use(flagKey) else { return defaultValue }
        guard let variable else { return flag.bool ?? defaultValue }
        return flag.details.variables[variable]?.bool ?? defaultValue
    }

    /// Returns the value of a flag's variation as a string. Parameters and result are those of
    /// ``boolVariation(flagKey:variable:defaultValue:)``.
    public func stringVariation(flagKey: String, variable: String? = nil, defaultValue: String) -> String {
        guard let flag = use(flagKey) else { return defaultValue }
        guard let variable else { return flag.string ?? defaultValue }
        return flag.details.variables[variable]?.text ?? defaultValue
    }

    /// Returns the value of a flag's variation as an integer. Parameters and result are those of
    /// ``boolVariation(flagKey:variable:defaultValue:)``.
    public func intVariation(flagKey: String, variable: String? = nil, defaultValue: Int) -> Int {
        guard let flag = use(flagKey) else { return defaultValue }
        guard let variable else { return flag.int ?? defaultValue }
        return flag.details.variables[variable]?.int ?? defaultValue
    }

    /// Returns the value of a flag's variation as a number. Parameters and result are those of
    /// ``boolVariation(flagKey:variable:defaultValue:)``.
    public func doubleVariation(flagKey: String, variable: String? = nil, defaultValue: Double) -> Double {
        guard let flag = use(flagKey) else { return defaultValue }
        guard let variable else { return flag.double ?? defaultValue }
        return flag.details.variables[variable]?.double ?? defaultValue
    }

    /// Returns the value of a flag's variation, decoded from JSON; a string that holds JSON counts. Parameters and result
    /// are those of ``boolVariation(flagKey:variable:defaultValue:)``.
    ///
    /// For the value as it is, use ``HoldfastValue`` as type; for all variables of a flag, see
    /// ``EvaluationDetails/variables``.
    public func jsonVariation<Value: Decodable>(flagKey: String, variable: String? = nil, defaultValue: Value) -> Value {
        guard let flag = use(flagKey) else { return defaultValue }
        let value = if let variable { flag.details.variables[variable] } else { flag.details.variationValue }
        return value?.decoded(as: Value.self) ?? defaultValue
    }

    /// Returns whether the user's variation turns a flag on.
    ///
    /// - Returns: `defaultValue` if the flag is unknown or not fetched yet; `false` without a variation.
    public func isEnabled(flagKey: String, defaultValue: Bool = false) -> Bool {
        use(flagKey)?.details.isEnabled ?? defaultValue
    }

    /// Returns the evaluation of a flag for the current user. Reports no exposure: an app that acts on the value calls
    /// one of the variation methods.
    ///
    /// - Returns: `nil` if the flag is unknown or not fetched yet.
    public func evaluationDetails(flagKey: String) -> EvaluationDetails? {
        flags.evaluations?[flagKey]?.details
    }

    /// All evaluations of the current user. Reports no exposure.
    public var allEvaluationDetails: [EvaluationDetails] {
        flags.evaluations?.all ?? []
    }

    /// Reports the exposure to a flag on its first use.
    func reportUse(flagKey: String) {
        _ = use(flagKey)
    }

    /// Returns a flag and reports the exposure on the first use.
    @inline(__always)
    private func use(_ flagKey: String) -> Evaluations.Flag? {
        guard let evaluations = flags.evaluations, let flag = evaluations[flagKey] else { return nil }
        if flag.takeReport() { report(flag, evaluations.content.userID) }
        return flag
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

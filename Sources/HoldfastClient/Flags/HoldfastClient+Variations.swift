extension HoldfastClient {
    /// Returns the value of a flag's variation as a boolean: `true` or `on`, `false` or `off`. See
    /// ``EvaluationDetails/variationValue`` for what the value is, and ``isEnabled(flagKey:defaultValue:)``.
    ///
    /// - Parameter variable: reads this variable of the flag instead.
    /// - Returns: `defaultValue` if the flag is unknown or not fetched yet, has no value for the user, or its value has
    ///   another type. A flag that is turned off on the server has its off value.
    public func boolVariation(flagKey: String, variable: String? = nil, defaultValue: Bool) -> Bool {
        evaluate(flagKey, defaultValue) { flag in
            guard let variable else { return flag.bool }
            return flag.details.variables[variable]?.bool
        }
    }

    /// Returns the value of a flag's variation as a string. Parameters and result are those of
    /// ``boolVariation(flagKey:variable:defaultValue:)``.
    public func stringVariation(flagKey: String, variable: String? = nil, defaultValue: String) -> String {
        evaluate(flagKey, defaultValue) { flag in
            guard let variable else { return flag.string }
            return flag.details.variables[variable]?.text
        }
    }

    /// Returns the value of a flag's variation as an integer. Parameters and result are those of
    /// ``boolVariation(flagKey:variable:defaultValue:)``.
    public func intVariation(flagKey: String, variable: String? = nil, defaultValue: Int) -> Int {
        evaluate(flagKey, defaultValue) { flag in
            guard let variable else { return flag.int }
            return flag.details.variables[variable]?.int
        }
    }

    /// Returns the value of a flag's variation as a number. Parameters and result are those of
    /// ``boolVariation(flagKey:variable:defaultValue:)``.
    public func doubleVariation(flagKey: String, variable: String? = nil, defaultValue: Double) -> Double {
        evaluate(flagKey, defaultValue) { flag in
            guard let variable else { return flag.double }
            return flag.details.variables[variable]?.double
        }
    }

    /// Returns the value of a flag's variation, decoded from JSON; a string that holds JSON counts. Parameters and result
    /// are those of ``boolVariation(flagKey:variable:defaultValue:)``.
    ///
    /// For the value as it is, use ``HoldfastValue`` as type; for all variables of a flag, see
    /// ``EvaluationDetails/variables``.
    public func jsonVariation<Value: Decodable>(flagKey: String, variable: String? = nil, defaultValue: Value) -> Value
    {
        evaluate(flagKey, defaultValue) { flag in
            let value = if let variable { flag.details.variables[variable] } else { flag.details.variationValue }
            return value?.decoded(as: Value.self)
        }
    }

    /// Returns whether the user's variation turns a flag on.
    ///
    /// - Returns: `defaultValue` if the flag is unknown or not fetched yet; `false` without a variation.
    public func isEnabled(flagKey: String, defaultValue: Bool = false) -> Bool {
        evaluate(flagKey, defaultValue) { $0.details.isEnabled }
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

    /// Returns how often each flag was evaluated with which result, since the client was created or the counts were
    /// reset. Defaults count with the reason for which they were returned. The client reports the counts to the server,
    /// whatever is reset here; see ``HoldfastConfiguration/reportsEvaluationCounts``.
    public func evaluationCounts(resetting: Bool = false) -> [EvaluationCount] {
        flags.counts.all(resetting: resetting)
    }

    /// Counts an evaluation and reports its exposure, for a value that the app has read through another method.
    func reportUse(flagKey: String) {
        evaluate(flagKey, ()) { _ in () }
    }

    /// Evaluates a flag: counts the evaluation, and reports the exposure on the first that returns the variation.
    @inline(__always)
    private func evaluate<Value>(
        _ flagKey: String, _ defaultValue: Value, _ value: (Evaluations.Flag) -> Value?
    ) -> Value {
        let evaluations = flags.evaluations
        guard let evaluations, let flag = evaluations[flagKey] else {
            flags.counts.countMissing(flagKey, isFetched: evaluations?.isFetched == true)
            return defaultValue
        }
        guard let value = value(flag) else {
            flag.wrongType.increment()
            return defaultValue
        }
        flag.counter.increment()
        if flag.takeReport() { report(flag, evaluations.content.userID) }
        return value
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
    /// `nil` if the user is not enrolled.
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

    private func decodeAssignment(_ response: HoldfastServer.Response) throws(HoldfastError) -> ExperimentAssignment {
        do throws(HoldfastError) {
            try HoldfastServer.check(response)
        } catch .refused(404, let detail, nil) where Problem(response)?.isOfUnknownPath == false {
            // An unknown experiment has a pointer.
            throw .unknownProject(detail: detail)
        }
        return try HoldfastServer.decode(ExperimentAssignment.self, response.body)
    }
}

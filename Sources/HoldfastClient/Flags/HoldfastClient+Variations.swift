extension HoldfastClient {
    /// Whether a flag is on; with a `variable` the value of that one, if it is a boolean.
    ///
    /// - Returns: `defaultValue` where the server does not know the flag or the variable, has not answered yet, or the
    ///   value is of another type.
    public func boolVariation(featureId: String, variable: String? = nil, defaultValue: Bool) -> Bool {
        guard let details = use(featureId) else { return defaultValue }
        guard let variable else { return details.isEnabled }
        return details.variables[variable]?.boolValue ?? defaultValue
    }

    /// The key of a flag's variation; with a `variable` the value of that one, if it is a text.
    ///
    /// - Returns: `defaultValue` as in ``boolVariation(featureId:variable:defaultValue:)``, and for a user without a
    ///   variation.
    public func stringVariation(featureId: String, variable: String? = nil, defaultValue: String) -> String {
        guard let details = use(featureId) else { return defaultValue }
        guard let variable else { return details.variationKey ?? defaultValue }
        return details.variables[variable]?.stringValue ?? defaultValue
    }

    /// The value of a flag's variable that is a whole number; without a `variable` of the only number that the flag
    /// carries.
    ///
    /// - Returns: `defaultValue` as in ``boolVariation(featureId:variable:defaultValue:)``.
    public func intVariation(featureId: String, variable: String? = nil, defaultValue: Int) -> Int {
        number(featureId, variable)?.intValue ?? defaultValue
    }

    /// The value of a flag's variable that is a number; without a `variable` of the only number that the flag carries.
    ///
    /// - Returns: `defaultValue` as in ``boolVariation(featureId:variable:defaultValue:)``.
    public func doubleVariation(featureId: String, variable: String? = nil, defaultValue: Double) -> Double {
        number(featureId, variable)?.doubleValue ?? defaultValue
    }

    /// All variables of a flag as an object; with a `variable` the value of that one, whatever its type.
    ///
    /// - Returns: `defaultValue` as in ``boolVariation(featureId:variable:defaultValue:)``.
    public func jsonVariation(featureId: String, variable: String? = nil, defaultValue: JSONValue) -> JSONValue {
        guard let details = use(featureId) else { return defaultValue }
        guard let variable else { return .object(details.variables) }
        return details.variables[variable] ?? defaultValue
    }

    /// All that is known of a flag for the current user; reports no exposure.
    ///
    /// - Returns: `nil` where the server does not know the flag, or has not answered yet.
    public func evaluationDetails(featureId: String) -> EvaluationDetails? {
        flags.evaluations?[featureId]?.details
    }

    /// The flags of the current user, as they are now; reports no exposure.
    public var allEvaluationDetails: [EvaluationDetails] {
        flags.evaluations?.content.evaluations ?? []
    }

    private func number(_ featureID: String, _ variable: String?) -> JSONValue? {
        guard let flag = usedFlag(featureID) else { return nil }
        return variable.map { flag.details.variables[$0] } ?? flag.number
    }

    @inline(__always)
    private func use(_ featureID: String) -> EvaluationDetails? {
        usedFlag(featureID)?.details
    }

    /// A flag that the app acts on, which the first time is an exposure.
    @inline(__always)
    private func usedFlag(_ featureID: String) -> Evaluations.Flag? {
        guard let evaluations = flags.evaluations, let flag = evaluations[featureID] else { return nil }
        if flag.takeReport() { report(flag, evaluations.content.userID) }
        return flag
    }

    /// Reports the exposure of a flag that the app acts on, the first time.
    func reportUse(featureID: String) {
        _ = usedFlag(featureID)
    }

    private func report(_ flag: Evaluations.Flag, _ userID: String) {
        guard let experimentID = flag.details.experimentID else { return }
        reportExposure(experiment: experimentID, variationID: flag.details.variationID, userID: userID)
    }
}

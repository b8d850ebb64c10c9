/// The values of flags for the current user, from memory.
extension HoldfastClient {
    /// Returns the value of a flag's variation as a boolean. The strings `true` and `on` count as true, and the strings
    /// `false` and `off` as false. ``EvaluationDetails/variationValue`` defines the value. To ask whether the flag is
    /// on, see ``isEnabled(flagKey:defaultValue:)``.
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

    /// Returns the value of a flag's variation, decoded from JSON. The value may also be a string that holds JSON.
    /// Parameters and result are those of ``boolVariation(flagKey:variable:defaultValue:)``.
    ///
    /// To get the JSON value without decoding it, use ``HoldfastValue`` as the type. ``EvaluationDetails/variables``
    /// has all variables of a flag.
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
    /// reset. Defaults count with the reason for which they were returned. The client reports all counts to the server,
    /// independently of resets; see ``HoldfastConfiguration/reportsEvaluationCounts``.
    public func evaluationCounts(resetting: Bool = false) -> [EvaluationCount] {
        flags.counts.all(resetting: resetting)
    }

    /// Counts an evaluation and reports its exposure, for a value that was read by ``evaluationDetails(flagKey:)``.
    func reportUse(flagKey: String) {
        // The value is not needed, only the effects of an evaluation.
        evaluate(flagKey, ()) { _ in () }
    }

    /// Evaluates a flag: counts the evaluation, and reports the exposure at the first evaluation that returns the
    /// flag's value.
    ///
    /// - Parameter value: returns the flag's value in the requested type; `nil` if it has another type.
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

    /// Reports that a user has seen the flag's variation.
    private func report(_ flag: Evaluations.Flag, _ userID: String) {
        guard let experimentID = flag.details.experimentID else { return }
        reportExposure(experiment: experimentID, variationID: flag.details.variationID, userID: userID)
    }
}

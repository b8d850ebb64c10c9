/// A feature flag: experiments and delivery rules that decide whether it is on, and the variables it carries.
public final class Flag: Sendable {
    public let id: Identifier
    public let key: Identifier
    public let experiments: [Experiment]
    public let rollout: Rollout?
    public let variables: [Variable]
    /// The variations of all its rules, each id once.
    public let variations: [Variation]

    private let defaultVariables: FlagVariables
    private let variablesByVariation: [Identifier: FlagVariables]

    /// - Parameters:
    ///   - holdoutVariations: those of all holdouts, which may be decided for any flag.
    ///   - texts: the values of variables by the id of a variation, for all variations of experiments.
    init(
        id: Identifier, key: Identifier, experiments: [Experiment], rollout: Rollout?, variables: [Variable],
        holdoutVariations: [Variation], texts: [Identifier: [Identifier: String]]
    ) {
        self.id = id
        self.key = key
        self.experiments = experiments
        self.rollout = rollout
        self.variables = variables
        var variations = KeyedList<Variation>()
        for variation in (experiments + (rollout?.rules ?? [])).flatMap(\.variations)
        where variations[variation.id] == nil {
            variations.set(variation.id, variation)
        }
        self.variations = variations.values
        defaultVariables = FlagVariables(variables) { $0.defaultValue }
        var variablesByVariation: [Identifier: FlagVariables] = [:]
        for variation in variations.values + holdoutVariations where variation.isFeatureEnabled {
            variablesByVariation[variation.id] = FlagVariables(variables) { variable in
                texts[variation.id].flatMap { $0[variable.id] ?? variable.defaultValue }
            }
        }
        self.variablesByVariation = variablesByVariation
    }

    /// What a user with a variation gets; the defaults if the flag is off.
    func variables(for variation: Variation?) -> FlagVariables {
        guard let variation, variation.isFeatureEnabled else { return defaultVariables }
        return variablesByVariation[variation.id] ?? .none
    }
}

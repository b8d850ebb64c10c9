public import JSON

/// A feature flag: its experiments and delivery rules decide whether it is on, and which values its variables have.
///
/// The values of each variation are parsed once, when the datafile is compiled. A decision only looks them up.
public final class Flag: Sendable {
    public let id: Identifier
    public let key: Identifier
    /// The experiments, in the order in which they are tried.
    public let experiments: [Experiment]
    /// The delivery rules for users in no experiment; `nil` if there are none.
    public let rollout: Rollout?
    public let variables: [Variable]
    /// The variations of all rules, each id once.
    public let variations: [Variation]
    /// Holdfast's own data about the flag, which the SDKs ignore.
    public let annotations: FlagAnnotations

    /// The variables with their default values.
    private let defaultVariables: FlagVariables
    /// The variables with the values of each variation that turns the flag on, by the id of the variation.
    private let variablesByVariation: [Identifier: FlagVariables]

    /// - Parameters:
    ///   - holdoutVariations: the variations of all holdouts, since a holdout may decide any flag.
    ///   - variableValues: the values of all variations of experiments as the datafile has them, by variation id and
    ///     variable id.
    init(
        _ model: FlagModel, experiments: [Experiment], rollout: Rollout?, holdoutVariations: [Variation],
        variableValues: [Identifier: [Identifier: String]]
    ) {
        id = model.id
        key = model.key
        variables = model.variables
        annotations = model.annotations
        self.experiments = experiments
        self.rollout = rollout
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
                // The variation of a holdout has no entry, so its variables have no text, not even the default.
                variableValues[variation.id].flatMap { $0[variable.id] ?? variable.defaultValue }
            }
        }
        self.variablesByVariation = variablesByVariation
    }

    /// Returns the values for users with a variation, or the defaults; see ``variables(for:)``.
    public func values(for variation: Variation?) -> [VariableValue] {
        variables(for: variation).values
    }

    /// Returns the variables of users with a variation: the defaults if there is none, or if it turns the flag off.
    func variables(for variation: Variation?) -> FlagVariables {
        guard let variation, variation.isFeatureEnabled else { return defaultVariables }
        return variablesByVariation[variation.id] ?? .none
    }
}

/// The API's own data about flags, experiments and groups, for which the format of datafiles has no place: a member
/// with an object, in the object of the flag, experiment or group. Decisions do not depend on annotations.
///
///     {"id": "1", "key": "checkout", …, "holdfast": {"tags": ["shop"], "version": 7}}
public enum Annotations {
    /// The name of the member. SDKs ignore it.
    public static let member = "holdfast"
}

/// The API's own data about a flag; see ``Annotations``.
public struct FlagAnnotations: Sendable {
    /// Labels by which clients can request some of the flags.
    public let tags: [Identifier]
    /// The revision of the datafile with the flag's last change; `nil` for a flag that was not defined over the API.
    public let version: Int64?
    /// Whether the flag only serves the experiment with the same key: its value is the key of the variation.
    public let servesExperiment: Bool
    /// Whether the flag was turned off over the API.
    public let isTurnedOff: Bool

    public init(_ object: JSONObject?) {
        tags = (object?["tags"]?.array ?? []).compactMap { $0.string.map { Identifier($0) } }
        version = object?["version"]?.integer
        servesExperiment = object?["experiment"] == true
        isTurnedOff = object?["off"] != nil
    }
}

/// The delivery rules of a flag. The last one is for everyone else.
public struct Rollout: Sendable {
    public let id: Identifier
    public let rules: [Experiment]
}

import JSON

/// What a datafile says, element by element, before ids are looked up and conditions compiled: what ``DatafileReader`` reads
/// and ``DatafileLinker`` links.
struct DatafileModel: Sendable {
    let source: JSONValue
    var accountID = ""
    var projectID = ""
    var revision = ""
    var sdkKey: String?
    var environmentKey: String?
    var anonymizesIP = false
    var botFiltering: Bool?
    var sendsFlagDecisions = false
    var attributes: [Attribute] = []
    var events: [Event] = []
    var audiences: [Audience] = []
    /// The experiments outside of groups, the delivery rules, and the experiments of groups, by id.
    var experiments = KeyedList<ExperimentModel>()
    /// The ids of the delivery rules, by the id of the rollout.
    var rollouts = KeyedList<[Identifier]>()
    var groups = KeyedList<Group>()
    var flags = KeyedList<FlagModel>()
    var holdouts: [HoldoutModel] = []

    // All elements in the order of the datafile, including those that a later element with the same id replaces.
    var readExperiments: [ReadElement<ExperimentModel>] = []
    var readFlags: [ReadElement<FlagModel>] = []

    init(_ source: JSONValue) {
        self.source = source
    }
}

/// An element of a datafile and the model that was read from it.
final class ReadElement<Model: Sendable>: Sendable {
    let source: JSONValue
    let model: Model

    init(source: JSONValue, model: Model) {
        self.source = source
        self.model = model
    }
}

/// An experiment or a delivery rule.
struct ExperimentModel: Sendable {
    let id: Identifier
    let key: Identifier
    let layerID: Identifier
    let status: String
    let type: String?
    let variations: [Variation]
    /// The variations for users outside the traffic of a feature rollout.
    var variationsForEveryoneElse: [Variation] = []
    /// The first one that the datafile lists, even if a later one has the same key.
    let firstVariation: Variation?
    var trafficAllocation: TrafficAllocation
    let forcedVariations: [Identifier: Identifier]
    var groupID: Identifier?
    var groupPolicy: String?
    /// Whom a contextual bandit admits; `nil` for any other experiment.
    let gate: TrafficAllocation?
    let audienceConditions: JSONValue
    let annotations: ExperimentAnnotations
}

/// An element of `featureFlags`.
struct FlagModel: Sendable {
    let id: Identifier
    let key: Identifier
    let experimentIDs: [Identifier]
    let rolloutID: Identifier
    let variables: [Variable]
    let annotations: FlagAnnotations
}

/// An element of `holdouts` or `localHoldouts`.
struct HoldoutModel: Sendable {
    let id: Identifier
    let key: Identifier
    let status: String
    let variations: [Variation]
    let trafficAllocation: TrafficAllocation
    /// `nil` for a global holdout.
    let includedRules: [Identifier]?
    let excludesTargetedDeliveries: Bool
    let audienceConditions: JSONValue
    /// The id of the variation of the users who are not held out; `nil` unless the holdout was defined over the API.
    let restID: Identifier?
}

import JSON

/// The elements of a datafile as ``DatafileReader`` reads them: checked and typed, but elements still refer to each
/// other by id, and conditions are still JSON. ``DatafileLinker`` makes a ``Datafile`` of them.
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

    // All elements with their JSON in the order of the datafile, including those that a later element with the same id
    // replaces. The next datafile is compared with them.
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

/// An element of `experiments`, or a delivery rule of `rollouts`. See ``Experiment``.
struct ExperimentModel: Sendable {
    let id: Identifier
    let key: Identifier
    let layerID: Identifier
    let status: String
    let type: String?
    let variations: [Variation]
    /// The variations for users outside the traffic of a feature rollout, which ``DatafileLinker`` takes from the flag.
    var variationsForEveryoneElse: [Variation] = []
    /// The first variation that the datafile lists, even if a later one has the same key.
    let firstVariation: Variation?
    var trafficAllocation: TrafficAllocation
    let forcedVariations: [Identifier: Identifier]
    var groupID: Identifier?
    var groupPolicy: String?
    /// The bucket values whose users a contextual bandit admits; `nil` for any other experiment.
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

/// A dictionary that keeps its values in the order in which their keys were first set.
struct KeyedList<Value> {
    private(set) var values: [Value] = []
    private(set) var keys: [Identifier] = []
    private var indices: [Identifier: Int] = [:]

    subscript(key: Identifier) -> Value? {
        indices[key].map { values[$0] }
    }

    /// Sets the value of a key. A known key keeps its position.
    mutating func set(_ key: Identifier, _ value: Value) {
        if let index = indices[key] {
            values[index] = value
        } else {
            indices[key] = values.count
            keys.append(key)
            values.append(value)
        }
    }

    /// Changes the value of a key, if it has one.
    mutating func update(_ key: Identifier, _ change: (inout Value) -> Void) {
        if let index = indices[key] {
            change(&values[index])
        }
    }
}

extension KeyedList: Sendable where Value: Sendable {}

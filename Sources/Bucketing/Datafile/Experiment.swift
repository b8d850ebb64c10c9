public import Chronology
public import JSON

/// An experiment, or a delivery rule of a flag, which the datafile describes like an experiment. Both have an audience
/// and divide its users among variations.
public final class Experiment: Sendable {
    public let id: Identifier
    public let key: Identifier
    /// The campaign id in decision events; may be empty.
    public let layerID: Identifier
    /// See ``ExperimentStatus``; a datafile may have others.
    public let status: String
    /// `ab`, `td` (targeted delivery), `fr` (feature rollout) and so on; `nil` if the datafile has no type.
    public let type: String?
    public let variations: [Variation]
    /// Divides the bucket values among the variations; see ``Bucketer``. In a contextual bandit it applies only to
    /// users whom ``gate`` admits.
    public let trafficAllocation: TrafficAllocation
    /// The bucket values whose users a contextual bandit (`cmab`) admits; `nil` for any other experiment.
    public let gate: TrafficAllocation?
    /// The whitelist: the keys of the variations that the datafile forces on users, by user id.
    public let forcedVariations: [Identifier: Identifier]
    /// The group that shares its traffic among mutually exclusive experiments; `nil` if the experiment is in no such
    /// group.
    public let exclusionGroup: Group?
    /// The datafile's `audienceConditions`, or else its `audienceIds`.
    public let audienceConditions: JSONValue
    public let annotations: ExperimentAnnotations

    /// Who may be enrolled; `nil` for everyone.
    let audience: Condition?
    /// Whether users are bucketed at all. The SDKs bucket nobody if the key is blank.
    let isBucketed: Bool
    /// The variations of the last experiment or holdout with the same key. Optimizely's Python SDK looks up whitelisted
    /// and stored variations there.
    let variationsOfKey: [Variation]

    init(
        _ model: ExperimentModel, audience: Condition?, exclusionGroup: Group?,
        variationsOfKey: [Variation]
    ) {
        id = model.id
        key = model.key
        layerID = model.layerID
        status = model.status
        type = model.type
        variations = model.variations + model.variationsForEveryoneElse
        trafficAllocation = model.trafficAllocation
        forcedVariations = model.forcedVariations
        gate = model.gate
        audienceConditions = model.audienceConditions
        annotations = model.annotations
        self.audience = audience
        isBucketed = !model.key.isBlank
        self.exclusionGroup = exclusionGroup
        self.variationsOfKey = variationsOfKey
    }

    public var isRunning: Bool { status == "Running" }

    public var isArchived: Bool { status == ExperimentStatus.archived.rawValue }

    public var isConcluded: Bool { status == ExperimentStatus.concluded.rawValue }

    /// The variation that everybody in the audience gets once the experiment is concluded with a winner; `nil` in any
    /// other case. Flags deliver it by a delivery rule.
    public var winner: Variation? {
        isConcluded ? annotations.winner.flatMap(variation(id:)) : nil
    }

    /// Whether no audience restricts who may be enrolled.
    public var isForEverybody: Bool { audience == nil }

    /// Whether the rule is a targeted delivery. A global holdout may exempt targeted deliveries.
    var isTargetedDelivery: Bool { type == "td" }

    public func variation(id: Identifier) -> Variation? {
        variations.variation(id: id)
    }

    public func variation(key: Identifier) -> Variation? {
        variations.variation(key: key)
    }
}

/// A status that the API gives to an experiment. A datafile may have others, such as `Launched`.
public enum ExperimentStatus: String, Sendable, CaseIterable {
    /// Only users with an override get a variation. In a datafile, a draft is a running experiment without traffic.
    case draft = "Draft"
    case running = "Running"
    case paused = "Paused"
    /// No longer running; its flag delivers the winner, if there is one.
    case concluded = "Concluded"
    case notStarted = "Not started"
    case archived = "Archived"

    /// The status as it is written in a datafile.
    public var json: JSONValue { .string(rawValue) }

    /// The name in the API.
    public var name: String { Self.name(of: rawValue) }

    /// Returns the name in the API of a status of a datafile: `Not started` is `not_started`.
    public static func name(of status: String) -> String {
        String(status.lowercased().map { $0 == " " ? "_" : $0 })
    }

    /// Finds a status by its name in the API or in a datafile, ignoring case; `nil` if there is none.
    public init?(name: String) {
        let name = Self.name(of: name)
        guard let status = Self.allCases.first(where: { $0.name == name }) else { return nil }
        self = status
    }
}

/// The API's own data about an experiment, from the member `holdfast` of the experiment's JSON; see ``Annotations``.
public struct ExperimentAnnotations: Sendable {
    /// The key of the flag whose rule the experiment is; `nil` for other experiments.
    public let flagKey: Identifier?
    /// Whether the experiment is a draft.
    public let isDraft: Bool
    /// Whether the experiment enrolls nobody: its enrollment is closed, or it is a draft. Then it has no traffic in the
    /// datafile, so that SDKs enroll nobody either.
    public let isClosed: Bool
    /// The id of the variation that was named the winner when the experiment was concluded.
    let winner: Identifier?
    /// The time at which the results of the concluded experiment were frozen; `nil` if they were not.
    public let frozenAt: Instant?
    /// The traffic that applies again once enrollment is reopened; `nil` while enrollment is open.
    public let allocation: TrafficAllocation?
    /// The percentage of users whom a contextual bandit admits once enrollment is reopened.
    public let gate: Double?
    /// The percentage of all users who are enrolled, for an experiment of a group that was created over the API.
    public let traffic: Double?
    /// Whether the API serves the experiment as a flag with the same key; `nil` if the definition does not say.
    public let isServed: Bool?
    /// How long users keep their variation; `nil` if the setting of the project applies.
    public let assignmentLifetime: AssignmentLifetime?

    public init(_ object: JSONObject?) {
        flagKey = object?["flag"]?.string.map { Identifier($0) }
        isDraft = object?["status"] == "draft"
        isClosed = isDraft || object?["enrollment"] == "closed"
        let conclusion = object?["conclusion"]?.object
        winner = conclusion?["winner"]?.string.map { Identifier($0) }
        frozenAt = conclusion?["frozenAt"]?.instant
        allocation = object?["trafficAllocation"].flatMap { try? TrafficAllocation(json: $0) }
        gate = object?["gate"]?.double
        traffic = object?["traffic"]?.double
        isServed = object?["served"]?.bool
        assignmentLifetime = AssignmentLifetime(object)
    }
}

extension Experiment {
    /// The traffic that applies while enrollment is open.
    public var plannedAllocation: TrafficAllocation {
        annotations.isClosed ? annotations.allocation ?? trafficAllocation : trafficAllocation
    }

    /// The percentage of users whom a contextual bandit admits while enrollment is open; `nil` for any other
    /// experiment.
    public var plannedGate: Double? {
        guard let gate else { return nil }
        // A bucket value is a hundredth of a percent.
        return annotations.gate ?? Double(gate.ranges.last?.end ?? 0) / 100
    }
}

/// One of the alternatives that an experiment gives to users.
public struct Variation: Sendable, Equatable {
    public let id: Identifier
    public let key: Identifier
    /// Whether the flag is on for users of this variation.
    public let isFeatureEnabled: Bool
    /// The values that differ from the flag's defaults, by variable id.
    public let variableValues: [Identifier: String]
    /// The relative weight that the variation was defined with over the API. Informative: decisions use the traffic
    /// allocation only.
    public let weight: Double?
}

extension [Variation] {
    /// Returns the last variation with an id, as later ones replace earlier ones.
    func variation(id: Identifier) -> Variation? {
        last { $0.id == id }
    }

    /// Returns the last variation with a key, as later ones replace earlier ones.
    func variation(key: Identifier) -> Variation? {
        last { $0.key == key }
    }

    /// Returns the variations of an experiment with each key once: the last one, at the position of the first.
    func lastOfEachKey() -> [Variation] {
        var variations = KeyedList<Variation>()
        for variation in self {
            variations.set(variation.key, variation)
        }
        return variations.values
    }
}

/// A group of experiments. With the policy `random` a user is enrolled in at most one of them.
public final class Group: Sendable {
    public let id: Identifier
    /// The name of a group that was created over the API; `nil` for other groups.
    public let name: String?
    public let policy: String
    /// Divides the bucket values among the experiments.
    public let trafficAllocation: TrafficAllocation
    public let experimentIDs: [Identifier]

    init(
        id: Identifier, name: String?, policy: String, trafficAllocation: TrafficAllocation, experimentIDs: [Identifier]
    ) {
        self.id = id
        self.name = name
        self.policy = policy
        self.trafficAllocation = trafficAllocation
        self.experimentIDs = experimentIDs
    }

    /// Whether a policy makes the experiments of a group mutually exclusive.
    static func excludes(policy: String?) -> Bool {
        policy == "random"
    }
}

public import Chronology
public import JSON

/// An experiment or a delivery rule.
public final class Experiment: Sendable {
    public let id: Identifier
    public let key: Identifier
    /// The campaign id in decision events; may be empty.
    public let layerID: Identifier
    public let status: String
    /// `ab`, `td` (targeted delivery), `fr` (feature rollout) and so on; `nil` if the datafile has no type.
    public let type: String?
    public let variations: [Variation]
    /// Divides the bucket values among the variations. In a contextual bandit it applies only to users whom ``gate``
    /// admits.
    public let trafficAllocation: TrafficAllocation
    /// The bucket values whose users a contextual bandit (`cmab`) admits; `nil` for any other experiment.
    public let gate: TrafficAllocation?
    /// The whitelist: variation keys by user id.
    public let forcedVariations: [Identifier: Identifier]
    /// The group that shares its traffic among mutually exclusive experiments; `nil` if the experiment is in no such
    /// group.
    public let exclusionGroup: Group?
    /// The datafile's `audienceConditions`, or else its `audienceIds`.
    public let audienceConditions: JSONValue
    public let annotations: ExperimentAnnotations

    /// Who may be enrolled; `nil` for everyone.
    let audience: Condition?
    /// Whether users are bucketed at all: not if the key is blank.
    let isBucketed: Bool
    /// The variations of the last experiment or holdout with the same key. The reference SDK looks up whitelisted and
    /// stored variations there.
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

    /// The variation that everybody in the audience gets, because the experiment is concluded; `nil` if none does. Flags
    /// deliver it by a delivery rule.
    public var winner: Variation? {
        isConcluded ? annotations.winner.flatMap(variation(id:)) : nil
    }

    /// Whether no audience restricts who may be enrolled.
    public var isForEverybody: Bool { audience == nil }

    /// Whether a global holdout may exempt the rule from being held out.
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

    /// Finds a status by its name in the API or in a datafile, in upper or lower case; `nil` if there is none.
    public init?(name: String) {
        let name = Self.name(of: name)
        guard let status = Self.allCases.first(where: { $0.name == name }) else { return nil }
        self = status
    }
}

/// The annotations of an experiment.
public struct ExperimentAnnotations: Sendable {
    /// The key of the flag whose rule the experiment is; `nil` for other experiments.
    public let flagKey: Identifier?
    /// Whether the experiment is a draft.
    public let isDraft: Bool
    /// Whether enrollment is closed, or the experiment is a draft. Either way the experiment has no traffic in the
    /// datafile, so that no SDK enrolls anybody.
    public let isClosed: Bool
    /// The id of the variation that was named the winner when the experiment was concluded.
    let winner: Identifier?
    /// When the results of a concluded experiment were frozen; `nil` if they were not.
    public let frozenAt: Instant?
    /// The traffic that applies again once enrollment is reopened.
    public let allocation: TrafficAllocation?
    /// The percentage of users whom a contextual bandit admits once enrollment is open again.
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

    /// The percentage of users whom a contextual bandit admits while enrollment is open; `nil` for any other experiment.
    public var plannedGate: Double? {
        gate.map { annotations.gate ?? Double($0.ranges.last?.end ?? 0) / 100 }
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

/// A share of users who are kept out of experiments, so that the combined effect of the experiments can be measured.
public final class Holdout: Sendable {
    public let id: Identifier
    public let key: Identifier
    public let status: String
    public let variations: [Variation]
    public let trafficAllocation: TrafficAllocation
    /// The rules that a local holdout applies to; `nil` for a global holdout, which applies to all flags.
    public let includedRules: [Identifier]?
    /// Whether rules of the type targeted delivery are evaluated for held-out users nevertheless.
    public let excludesTargetedDeliveries: Bool
    /// The datafile's `audienceConditions`, or else its `audienceIds`.
    public let audienceConditions: JSONValue

    /// Who may be held out; `nil` for everyone.
    let audience: Condition?
    /// Whether users are bucketed at all: not if the key is blank.
    let isBucketed: Bool

    /// An experiment that compares the exposures of the held-out users with those of all others, as two variations;
    /// `nil` for a holdout that was not defined over the API. It has the id of the holdout, and no decision uses it.
    public let comparison: Experiment?
    /// The variation of the users who are not held out, which is not among the datafile's variations.
    let rest: Variation?

    init(_ model: HoldoutModel, audiences: [Identifier: Condition]) {
        id = model.id
        key = model.key
        status = model.status
        variations = model.variations
        trafficAllocation = model.trafficAllocation
        includedRules = model.includedRules
        excludesTargetedDeliveries = model.excludesTargetedDeliveries
        audienceConditions = model.audienceConditions
        audience = Condition.ofExperiment(model.audienceConditions, audiences: audiences)
        isBucketed = !model.key.isBlank
        rest = model.restID.map {
            Variation(id: $0, key: "rest", isFeatureEnabled: true, variableValues: [:], weight: nil)
        }
        comparison = rest.map { rest in
            let all = TrafficAllocation.Range(entityID: rest.id, end: Bucketer.bucketCount)
            let both = ExperimentModel(
                id: model.id, key: model.key, layerID: "", status: model.status, type: nil,
                variations: model.variations + [rest], firstVariation: model.variations.first,
                trafficAllocation: TrafficAllocation(ranges: model.trafficAllocation.ranges + [all]),
                forcedVariations: [:], gate: nil, audienceConditions: model.audienceConditions,
                annotations: ExperimentAnnotations(nil))
            return Experiment(both, audience: nil, exclusionGroup: nil, variationsOfKey: [])
        }
    }

    public var isRunning: Bool { status == "Running" }

    /// Whether the holdout was defined over the API.
    public var isOwn: Bool { rest != nil }
}

public import JSON

/// A project's experiments and flags, compiled from a datafile of version 4 (the JSON format of Optimizely's SDKs).
/// Immutable.
///
/// Compiling has two steps. ``DatafileReader`` reads the JSON into a ``DatafileModel`` and collects every problem;
/// ``DatafileLinker`` replaces the ids in the model by the elements that have them, and compiles the audience
/// conditions. Edits are frequent and change few elements. So both steps reuse the unchanged elements of a former
/// datafile. If an edit has changed only a few experiments and flags in place, only these are compiled; see
/// ``DatafileEdit``.
///
/// The datafile must have what the schema and the `ProjectConfig` of Optimizely's Python SDK require; unknown members
/// are ignored. If two elements have the same key or id, the last one counts, as in that SDK.
public final class Datafile: Sendable {
    /// The datafile as it was given, including unknown members.
    public let source: JSONValue

    /// The id of the account that has the project.
    public let accountID: String
    public let projectID: String
    /// The version of the datafile. Each edit over the API increments it.
    public let revision: String
    /// The key by which SDKs request the datafile of a project.
    public let sdkKey: String?
    public let environmentKey: String?
    /// The setting `anonymizeIP`. No decision depends on it.
    public let anonymizesIP: Bool
    /// The setting `botFiltering`. No decision depends on it.
    public let botFiltering: Bool?
    /// Whether delivery rules send decision events, too.
    public let sendsFlagDecisions: Bool
    /// How long users keep a variation, unless the experiment has its own setting. `nil` if the project has no setting.
    public let assignmentLifetime: AssignmentLifetime?

    public let attributes: [Attribute]
    /// The audiences: `typedAudiences`, and those of `audiences` that they do not replace.
    public let audiences: [Audience]
    public let events: [Event]
    public let groups: [Group]
    /// All experiments: those outside of groups, the delivery rules of rollouts, and those of groups.
    public let experiments: [Experiment]
    public let flags: [Flag]
    public let rollouts: [Rollout]
    /// Global and local holdouts, including those that are not running.
    public let holdouts: [Holdout]
    /// The attributes and segments that the audiences refer to.
    public let mentions: Mentions

    /// Whether the results of audiences should be cached: an audience has many conditions, or uses a segment, which may
    /// have many.
    let hasLargeAudiences: Bool
    /// The running global holdouts, in the order of the datafile.
    let globalHoldouts: [Holdout]
    /// The parsed and compiled elements, which the next datafile reuses.
    let elements: DatafileElements
    /// The ids of the delivery rules of all rollouts.
    private let deliveryRules: Set<Identifier>
    /// The running local holdouts, by the ids of the rules that they apply to.
    private let holdoutsByRule: [Identifier: [Holdout]]
    // These dictionaries have the indices of experiments and flags, and not the elements, so that most edits need no
    // new dictionaries.
    private let experimentsByKey: [Identifier: Int]
    private let experimentsByID: [Identifier: Int]
    private let flagsByKey: [Identifier: Int]
    private let eventsByKey: [Identifier: Event]
    let audiencesByID: [Identifier: Audience]

    /// Compiles a datafile, as fast as possible if it is an edit of a former one.
    ///
    /// - Parameters:
    ///   - former: a datafile that is probably similar. Elements that both have are not compiled again.
    ///   - edit: the difference between the two; `nil` if the caller does not know it.
    /// - Throws: ``DatafileError`` with every problem found.
    public static func compile(
        _ source: JSONValue, similarTo former: Datafile?, _ edit: DatafileEdit? = nil
    ) throws(DatafileError) -> Datafile {
        if let edited = former?.edited(to: source, edit) { return edited }
        return try Datafile(source, similarTo: former)
    }

    /// Compiles a datafile by reading and linking all elements that the former one does not have.
    ///
    /// - Throws: ``DatafileError`` with every problem found.
    public convenience init(_ source: JSONValue, similarTo former: Datafile? = nil) throws(DatafileError) {
        let (model, changes) = try DatafileReader.read(source, similarTo: former)
        var linker = DatafileLinker(model, changes)
        self.init(model, linker.link())
    }

    private init(_ model: DatafileModel, _ linked: DatafileLinker.Linked) {
        source = model.source
        accountID = model.accountID
        projectID = model.projectID
        revision = model.revision
        sdkKey = model.sdkKey
        environmentKey = model.environmentKey
        anonymizesIP = model.anonymizesIP
        botFiltering = model.botFiltering
        sendsFlagDecisions = model.sendsFlagDecisions
        assignmentLifetime = AssignmentLifetime(model.source.object?[Annotations.member]?.object)
        attributes = model.attributes
        audiences = model.audiences
        events = model.events
        groups = model.groups.values
        experiments = linked.experiments
        flags = linked.flags
        rollouts = linked.rollouts
        holdouts = linked.holdouts
        mentions = linked.mentions
        hasLargeAudiences = linked.hasLargeAudiences
        elements = linked.elements
        globalHoldouts = holdouts.filter { $0.isRunning && $0.includedRules == nil }
        deliveryRules = Set(rollouts.lazy.flatMap(\.rules).map(\.id))
        holdoutsByRule = Self.byRule(holdouts.filter(\.isRunning))
        experimentsByKey = Dictionary(experiments.enumerated().map { ($1.key, $0) }, uniquingKeysWith: { $1 })
        experimentsByID = Dictionary(experiments.enumerated().map { ($1.id, $0) }, uniquingKeysWith: { $1 })
        flagsByKey = Dictionary(flags.enumerated().map { ($1.key, $0) }, uniquingKeysWith: { $1 })
        eventsByKey = Dictionary(events.map { ($0.key, $0) }, uniquingKeysWith: { $1 })
        audiencesByID = Dictionary(audiences.map { ($0.id, $0) }, uniquingKeysWith: { $1 })
    }

    /// Creates a datafile that has the experiments and flags of a ``Replacement``, and everything else of a former
    /// datafile.
    init(_ former: Datafile, _ source: JSONValue, revision: String, _ next: Replacement) {
        self.source = source
        accountID = former.accountID
        projectID = former.projectID
        self.revision = revision
        sdkKey = former.sdkKey
        environmentKey = former.environmentKey
        anonymizesIP = former.anonymizesIP
        botFiltering = former.botFiltering
        sendsFlagDecisions = former.sendsFlagDecisions
        assignmentLifetime = AssignmentLifetime(source.object?[Annotations.member]?.object)
        attributes = former.attributes
        audiences = former.audiences
        events = former.events
        groups = former.groups
        experiments = next.experiments
        flags = next.flags
        rollouts = former.rollouts
        holdouts = former.holdouts
        mentions = former.mentions
        hasLargeAudiences = former.hasLargeAudiences
        elements = next.elements
        globalHoldouts = former.globalHoldouts
        deliveryRules = former.deliveryRules
        holdoutsByRule = former.holdoutsByRule
        experimentsByKey = former.experimentsByKey
        experimentsByID = former.experimentsByID
        flagsByKey = former.flagsByKey
        eventsByKey = former.eventsByKey
        audiencesByID = former.audiencesByID
    }

    /// Returns the local holdouts among some holdouts, by the ids of the rules that they apply to.
    private static func byRule(_ holdouts: [Holdout]) -> [Identifier: [Holdout]] {
        var byRule: [Identifier: [Holdout]] = [:]
        for holdout in holdouts {
            for rule in holdout.includedRules ?? [] {
                byRule[rule, default: []].append(holdout)
            }
        }
        return byRule
    }
}

extension Datafile {
    /// Returns the JSON of a datafile that defines nothing.
    ///
    /// - Parameter projectID: also used as the account id.
    public static func empty(projectID: String, sdkKey: String? = nil) -> JSONValue {
        var root = JSONObject()
        root["version"] = "4"
        root["accountId"] = .string(projectID)
        root["projectId"] = .string(projectID)
        root["revision"] = "0"
        root["sdkKey"] = sdkKey.map { .string($0) }
        for list in [
            "groups", "experiments", "events", "attributes", "audiences", "typedAudiences", "featureFlags", "rollouts",
            "holdouts", "localHoldouts",
        ] {
            root[list] = []
        }
        return .object(root)
    }

    // MARK: Lookups

    public func flag(key: Identifier) -> Flag? {
        flagsByKey[key].map { flags[$0] }
    }

    public func experiment(key: Identifier) -> Experiment? {
        experimentsByKey[key].map { experiments[$0] }
    }

    public func experiment(id: Identifier) -> Experiment? {
        experimentsByID[id].map { experiments[$0] }
    }

    /// Returns the experiments that are new, changed, or moved between experiments and delivery rules, compared with a
    /// former datafile. An experiment that both datafiles share counts as unchanged, see ``DatafileChanges``.
    public func experiments(unlike former: Datafile) -> [Experiment] {
        // Datafiles are large, so candidates are found by comparing memory. Candidates that only moved in the list are
        // then left out.
        var indices = experiments.unsharedPlaces(with: former.experiments).filter { index in
            former.experiment(id: experiments[index].id) !== experiments[index]
        }
        if deliveryRules != former.deliveryRules {
            let changedKinds = experiments.indices.filter { index in
                let id = experiments[index].id
                return isDeliveryRule(id) != former.isDeliveryRule(id)
            }
            indices = Set(indices + changedKinds).sorted()
        }
        return indices.map { experiments[$0] }
    }

    /// Returns the flags that are new or changed compared with a former datafile.
    public func flags(unlike former: Datafile) -> [Flag] {
        flags.unsharedPlaces(with: former.flags).map { flags[$0] }.filter { former.flag(key: $0.key) !== $0 }
    }

    /// Whether an experiment is a delivery rule of a flag. Assignments to delivery rules are not stored for users.
    public func isDeliveryRule(_ experimentID: Identifier) -> Bool {
        deliveryRules.contains(experimentID)
    }

    public func event(key: Identifier) -> Event? {
        eventsByKey[key]
    }

    /// Returns the audience conditions of an experiment, with the id of each audience replaced by its conditions;
    /// `null` if everybody may be enrolled.
    public func audience(of experiment: Experiment) -> JSONValue {
        if experiment.isForEverybody { return .null }
        // The API stores the given conditions as an audience, and refers to it by a list with one id.
        if let list = experiment.audienceConditions.array, list.count == 1 { return resolved(list[0]) }
        return resolved(experiment.audienceConditions)
    }

    /// Returns the holdout with a key, or else with an id.
    public func holdout(keyOrID name: Identifier) -> Holdout? {
        holdouts.last { $0.key == name } ?? holdouts.last { $0.id == name }
    }

    /// Returns the running local holdouts of a rule.
    func localHoldouts(ofRule id: Identifier) -> [Holdout] {
        holdoutsByRule.isEmpty ? [] : holdoutsByRule[id] ?? []
    }

    /// Returns the keys of the experiments, delivery rules and holdouts whose audience names a segment.
    public func keys(usingSegment name: Identifier) -> [Identifier] {
        keys(experiments, holdouts) { $0.segments.contains(name) }
    }

    /// Returns the keys of the running experiments, delivery rules and holdouts whose audience tests an attribute
    /// directly, not through a segment.
    public func keys(askingFor attribute: Identifier) -> [Identifier] {
        keys(experiments.filter(\.isRunning), holdouts.filter(\.isRunning)) { $0.attributes.contains(attribute) }
    }

    /// Returns the keys of those experiments and holdouts whose audience mentions an attribute or a segment.
    ///
    /// - Parameter isMentioned: returns whether the attribute or the segment is among some mentions.
    private func keys(
        _ experiments: [Experiment], _ holdouts: [Holdout], mentioning isMentioned: (Mentions) -> Bool
    ) -> [Identifier] {
        // Mostly no audience of the datafile mentions it.
        guard isMentioned(mentions) else { return [] }
        let audiences = experiments.map { ($0.key, $0.audience) } + holdouts.map { ($0.key, $0.audience) }
        return audiences.compactMap { key, audience in
            var mentions = Mentions()
            audience?.collectMentions(into: &mentions)
            return isMentioned(mentions) ? key : nil
        }
    }
}

/// An attribute of users that audiences and events refer to.
public struct Attribute: Sendable {
    public let id: Identifier
    public let key: Identifier
}

/// The users who meet conditions on their attributes.
public struct Audience: Sendable {
    public let id: Identifier
    public let name: String
    /// A condition, or a list of conditions that begins with `and`, `or` or `not`.
    public let conditions: JSONValue
}

/// A conversion event that users can trigger.
public struct Event: Sendable {
    public let id: Identifier
    public let key: Identifier
    public let experimentIDs: [Identifier]
}

/// A datafile is invalid: lists every problem with its location.
public struct DatafileError: Error, Sendable, Equatable {
    /// At least one, in the order in which the parts of the datafile are read.
    public var problems: [JSONFault]
}

extension DatafileError: CustomStringConvertible {
    public var description: String {
        problems.map(\.description).joined(separator: "\n")
    }
}

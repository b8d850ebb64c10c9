public import JSON

/// A project's experiments and flags, compiled once from a datafile of version 4 and then only read.
///
/// What the datafile must contain is what the reference SDK's schema and its `ProjectConfig` demand; members they do
/// not know are ignored. Where two things have one key or id, the last counts, as there.
public final class Datafile: Sendable {
    /// The datafile as it was given, unknown members included.
    public let source: JSONValue

    public let accountID: String
    public let projectID: String
    public let revision: String
    public let sdkKey: String?
    public let environmentKey: String?
    public let anonymizesIP: Bool
    public let botFiltering: Bool?
    /// Whether decision events are sent for delivery rules too.
    public let sendsFlagDecisions: Bool

    public let attributes: [Attribute]
    public let audiences: [Audience]
    public let events: [Event]
    public let groups: [Group]
    /// Also those of groups, and the delivery rules.
    public let experiments: [Experiment]
    public let flags: [Flag]
    public let rollouts: [Rollout]
    /// Global and local ones, also those that do not run.
    public let holdouts: [Holdout]
    /// What the audiences ask of users.
    public let mentions: Mentions

    /// Whether there are audiences of many conditions, or segments, which may have as many.
    let hasLongAudiences: Bool
    /// Those that run, in the order of the datafile.
    let globalHoldouts: [Holdout]
    private let holdoutsByRule: [Identifier: [Holdout]]
    private let experimentsByKey: [Identifier: Experiment]
    private let experimentsByID: [Identifier: Experiment]
    private let flagsByKey: [Identifier: Flag]
    private let eventsByKey: [Identifier: Event]

    /// - Throws: ``DatafileError`` with everything that is wrong.
    public convenience init(_ source: JSONValue) throws(DatafileError) {
        var compiler = DatafileCompiler(source)
        let parts = compiler.compile()
        guard compiler.problems.isEmpty else { throw DatafileError(problems: compiler.problems) }
        self.init(parts)
    }

    private init(_ parts: DatafileCompiler.Parts) {
        source = parts.source
        accountID = parts.accountID
        projectID = parts.projectID
        revision = parts.revision
        sdkKey = parts.sdkKey
        environmentKey = parts.environmentKey
        anonymizesIP = parts.anonymizesIP
        botFiltering = parts.botFiltering
        sendsFlagDecisions = parts.sendsFlagDecisions
        attributes = parts.attributes
        audiences = parts.audiences
        events = parts.events
        groups = parts.groups
        experiments = parts.experiments
        flags = parts.flags
        rollouts = parts.rollouts
        holdouts = parts.holdouts
        mentions = parts.mentions
        hasLongAudiences = parts.hasLongAudiences
        globalHoldouts = holdouts.filter { $0.isRunning && $0.includedRules == nil }
        holdoutsByRule = Self.byRule(holdouts.filter(\.isRunning))
        experimentsByKey = Dictionary(experiments.map { ($0.key, $0) }, uniquingKeysWith: { $1 })
        experimentsByID = Dictionary(experiments.map { ($0.id, $0) }, uniquingKeysWith: { $1 })
        flagsByKey = Dictionary(flags.map { ($0.key, $0) }, uniquingKeysWith: { $1 })
        eventsByKey = Dictionary(events.map { ($0.key, $0) }, uniquingKeysWith: { $1 })
    }

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
    public func flag(key: Identifier) -> Flag? {
        flagsByKey[key]
    }

    public func experiment(key: Identifier) -> Experiment? {
        experimentsByKey[key]
    }

    public func experiment(id: Identifier) -> Experiment? {
        experimentsByID[id]
    }

    public func event(key: Identifier) -> Event? {
        eventsByKey[key]
    }

    /// The running holdouts of one rule.
    func holdouts(ofRule id: Identifier) -> [Holdout] {
        holdoutsByRule.isEmpty ? [] : holdoutsByRule[id] ?? []
    }

    /// The keys of the experiments, delivery rules and holdouts whose audience names a segment.
    public func keys(usingSegment name: Identifier) -> [Identifier] {
        guard mentions.segments.contains(name) else { return [] }
        let audiences = experiments.map { ($0.key, $0.audience) } + holdouts.map { ($0.key, $0.audience) }
        return audiences.compactMap { key, audience in
            var mentions = Mentions()
            audience?.collectMentions(into: &mentions)
            return mentions.segments.contains(name) ? key : nil
        }
    }
}

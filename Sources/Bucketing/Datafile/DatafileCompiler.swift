import JSON

/// Compiles the parts of a ``Datafile`` and collects every problem on the way.
struct DatafileCompiler {
    struct Parts {
        var source: JSONValue
        var accountID = ""
        var projectID = ""
        var revision = ""
        var sdkKey: String?
        var environmentKey: String?
        var anonymizesIP = false
        var botFiltering: Bool?
        var sendsFlagDecisions = false
        var attributes: [Attribute] = []
        var audiences: [Audience] = []
        var events: [Event] = []
        var groups: [Group] = []
        var experiments: [Experiment] = []
        var flags: [Flag] = []
        var rollouts: [Rollout] = []
        var holdouts: [Holdout] = []
        var mentions = Mentions()
        var hasLargeAudiences = false
        var elements = DatafileElements()
    }

    let root: DatafileReader.Node
    var reader = DatafileReader()
    var conditions: [Identifier: Condition] = [:]
    var groups = KeyedList<Group>()
    /// The experiments and delivery rules, by id.
    var parsedExperiments = KeyedList<ParsedExperiment>()
    /// The ids of the delivery rules, by the id of the rollout.
    var rollouts = KeyedList<[Identifier]>()
    /// The variable values of variations, by variation id and variable id.
    var texts: [Identifier: [Identifier: String]] = [:]

    var elements = DatafileElements()
    /// Those that the former datafile does not have like this.
    var newExperiments: [ParsedExperiment] = []
    var newFlags: [ParsedFlag] = []
    var formerExperiments: FormerElements<ParsedExperiment>
    var formerFlags: FormerElements<ParsedFlag>
    private let former: Datafile?
    /// `nil` if there is no former datafile.
    var changes: DatafileChanges?

    var problems: [JSONFault] { reader.problems }

    init(_ source: JSONValue, similarTo former: Datafile?) {
        root = DatafileReader.Node(value: source, pointer: JSONPointer())
        self.former = former
        formerExperiments = FormerElements(former?.elements.experiments ?? [])
        formerFlags = FormerElements(former?.elements.flags ?? [])
        changes = former.map { DatafileChanges(source, since: $0) }
    }

    mutating func compile() -> Parts {
        var parts = Parts(source: root.value)
        guard root.value.object != nil else {
            reader.reject(root.pointer, "a datafile must be an object; got \(root.value.kind)")
            return parts
        }
        readProject(&parts)
        parts.audiences = readAudiences()
        for condition in conditions.values { condition.collectMentions(into: &parts.mentions) }
        parts.hasLargeAudiences = !parts.mentions.segments.isEmpty || conditions.values.contains { $0.isLarge }
        readExperiments()
        let flags = readFlags()
        parts.holdouts = readHoldouts()
        parts.groups = groups.values
        let experiments = makeExperiments(holdouts: parts.holdouts)
        parts.experiments = experiments.values
        let rollouts = makeRollouts(experiments)
        parts.rollouts = rollouts.values
        let holdoutVariations = parts.holdouts.flatMap(\.variations)
        parts.flags = flags.map { flag in
            let rules = flag.experimentIDs.compactMap { experiments[$0] }
            let rollout = rollouts[flag.rolloutID]
            return changes?.unchanged(flag, rules, rollout)
                ?? Flag(
                    id: flag.id, key: flag.key, experiments: rules, rollout: rollout, variables: flag.variables,
                    annotations: flag.annotations, holdoutVariations: holdoutVariations, texts: texts)
        }
        elements.conditions = conditions
        elements.texts = texts
        elements.areUnique =
            experiments.values.count == elements.experiments.count && flags.count == elements.flags.count
            && Set(experiments.values.lazy.map(\.key)).count == experiments.values.count
            && texts.count == experiments.values.reduce(0) { $0 + $1.variations.count }
        parts.elements = elements
        return parts
    }

    private mutating func readProject(_ parts: inout Parts) {
        let version = reader.string("version", of: root)
        if problems.isEmpty, version != "4" {
            reader.reject(["version"], "`version` must be '4'; got '\(version)'")
        }
        parts.accountID = reader.string("accountId", of: root)
        parts.projectID = reader.string("projectId", of: root)
        parts.revision = reader.string("revision", of: root)
        parts.sdkKey = reader.optionalString("sdkKey", of: root)
        parts.environmentKey = reader.optionalString("environmentKey", of: root)
        parts.anonymizesIP = reader.optionalBool("anonymizeIP", of: root) ?? false
        parts.botFiltering = reader.optionalBool("botFiltering", of: root)
        parts.sendsFlagDecisions = reader.optionalBool("sendFlagDecisions", of: root) ?? false
        parts.attributes = reader.objects("attributes", of: root).map { node in
            Attribute(id: reader.id("id", of: node), key: reader.id("key", of: node))
        }
        parts.events = reader.objects("events", of: root).map { node in
            Event(
                id: reader.id("id", of: node), key: reader.id("key", of: node),
                experimentIDs: reader.ids("experimentIds", of: node)
            )
        }
    }

    /// Reads `audiences`, whose conditions are JSON encoded as a string, and `typedAudiences`, which replace them.
    private mutating func readAudiences() -> [Audience] {
        var audiences = KeyedList<Audience>()
        let typed = reader.objects("typedAudiences", of: root, isOptional: true)
        let typedIDs = Set(typed.map { reader.id("id", of: $0) })
        for node in reader.objects("audiences", of: root) {
            let id = reader.id("id", of: node)
            let text = reader.string("conditions", of: node)
            var audienceConditions = JSONValue.null
            if !typedIDs.contains(id) {
                do {
                    audienceConditions = try JSONParser().parse(text)
                } catch {
                    reader.reject(node.pointer.appending("conditions"), "`conditions` must be JSON: \(error)")
                }
            }
            audiences.set(id, Audience(id: id, name: reader.string("name", of: node), conditions: audienceConditions))
        }
        for node in typed {
            let id = reader.id("id", of: node)
            if node.value.object?["conditions"] == nil { reader.reject(node.pointer, "`conditions` is required") }
            let audienceConditions = node.value.object?["conditions"] ?? .null
            audiences.set(id, Audience(id: id, name: reader.string("name", of: node), conditions: audienceConditions))
        }
        let known = Dictionary((former?.audiences ?? []).map { ($0.id, $0) }, uniquingKeysWith: { $1 })
        for audience in audiences.values {
            if known[audience.id]?.conditions == audience.conditions {
                conditions[audience.id] = former?.elements.conditions[audience.id]
            } else {
                conditions[audience.id] = Condition(audience: audience.conditions)
                    .cachedIfLarge(as: .audience(audience.id))
            }
        }
        return audiences.values
    }
}

public import Bucketing
public import JSON

/// The definitions of a project as values that an edit changes. ``generate(since:)`` writes the datafile from them.
///
/// Everything that the API does not edit stays as the uploaded datafile has it: events, holdouts of the upload, and
/// members that Holdfast does not know.
public struct ProjectDefinitions: Sendable, Equatable {
    /// The experiments. Once the datafile is generated, they have its order: those outside of groups first, then group
    /// by group.
    package var experiments = DefinitionList<ExperimentDefinition>()
    /// The groups of experiments, including those of an uploaded datafile.
    package var groups = DefinitionList<ExperimentGroup>()
    /// All flags: those of the API, those that serve an experiment, and those of an uploaded datafile.
    package var flags = DefinitionList<FlagDefinition>()
    /// The metrics that experiments may measure.
    public internal(set) var metrics = DefinitionList<MetricDefinition>()
    /// The holdouts that were defined over the API. Those of an uploaded datafile are in ``root`` only.
    package var holdouts = DefinitionList<HoldoutDefinition>()
    /// The rollouts in the format of a datafile: the delivery rules of the flags.
    package var rollouts: [JSONValue]
    /// The audiences in the format of a datafile (`typedAudiences`).
    package var audiences: [JSONValue]
    /// The ids of the groups whose traffic must be divided after all experiments of a set have changed; `nil` if each
    /// change of an experiment divides the traffic of its group. See ``allocateGroup(_:)``.
    package var unallocatedGroups: Set<Identifier>?
    /// The variation ids that several served experiments share, as of the last ``generate(since:)``.
    var sharedVariations: [Identifier: SharedVariation] = [:]
    /// The ids of the variations of all experiments, as of the last ``generate(since:)``.
    var variationIDs = VariationIDs()
    /// Identifies the last ``generate(since:)``; `nil` if the datafile was read, so that the next one writes
    /// everything.
    var generation: Generation?
    /// The SDK key of the project. An uploaded datafile may lack it.
    package var sdkKey: String
    /// The assignment lifetime of the experiments that do not define one; `nil` if the server's configuration applies.
    public var assignmentLifetime: AssignmentLifetime?
    /// The datafile as it was read or last generated.
    package var root: JSONObject

    /// Creates the definitions of a new project.
    ///
    /// - Parameter projectID: also used as the account id.
    public init(projectID: String, sdkKey: String? = nil) {
        self.init(Datafile.empty(projectID: projectID, sdkKey: sdkKey))
    }

    /// The generated datafile.
    public var datafile: JSONValue { .object(root) }

    /// The datafile as JSON text.
    public var content: [UInt8] { datafile.encoded() }

    /// Returns the generated datafile in parts, and its difference from a former one.
    ///
    /// - Parameters:
    ///   - former: the definitions before an edit, and their datafile; `nil` if it was not stored in parts.
    ///   - edit: the difference between the two datafiles; `nil` if it is not known.
    /// - Returns: `nil` if the datafile was not generated, or cannot be stored in parts.
    package func parts(
        replacing former: (definitions: ProjectDefinitions, parts: DatafileParts)?, _ edit: DatafileEdit? = nil
    ) -> (parts: DatafileParts, change: DatafileParts.Change)? {
        guard generation != nil else { return nil }
        return DatafileParts.edited(to: root, since: former.map { ($0.definitions.root, $0.parts) }, edit)
    }

    /// Returns a part of each experiment: those outside of groups, and those of each group by its id.
    func experimentsByGroup<Part>(
        _ part: (ExperimentDefinition) -> Part
    ) -> (outside: [Part], grouped: [Identifier: [Part]]) {
        var outside: [Part] = []
        var grouped: [Identifier: [Part]] = [:]
        for (groupID, part) in experiments.map({ ($0.groupID, part($0)) }) {
            if let groupID { grouped[groupID, default: []].append(part) } else { outside.append(part) }
        }
        return (outside, grouped)
    }

    /// Increments the revision. A revision that is not a number becomes 1.
    public mutating func incrementRevision() {
        let (incremented, overflow) = (Int64(revision) ?? 0).addingReportingOverflow(1)
        root["revision"] = .string(overflow ? "1" : String(incremented))
    }

    /// The revision of the datafile, which each edit increments.
    package var revision: String { root["revision"]?.string ?? "" }

    // MARK: Experiments and flags

    /// Returns the experiments of a flag, in the order of its rules.
    package func experiments(of flag: FlagDefinition) -> [ExperimentDefinition] {
        switch flag.content {
        case .rules(let content): content.rules.compactMap { $0.delivery == nil ? experiments[$0.key] : nil }
        case .experiment: experiments[flag.key].map { [$0] } ?? []
        case .datafile(_, let ids): ids.compactMap { experiment(id: $0) }
        }
    }

    /// Whether an experiment is one of a flag.
    private func has(_ flag: FlagDefinition, _ id: Identifier) -> Bool {
        experiments(of: flag).contains { $0.id == id }
    }

    /// Returns the flags that have an experiment, without the flag that serves it.
    package func flags(ofExperiment id: Identifier) -> [FlagDefinition] {
        flags.all(naming: [id] + experiments.keys(naming: id)).filter { has($0, id) }
    }

    /// Returns the flags that have an experiment, including the flag that serves it.
    package func owners(of id: Identifier) -> [FlagDefinition] {
        let keys = experiments.keys(naming: id)
        return flags.all(naming: [id] + keys, orKeyed: keys).filter { has($0, id) }
    }

    /// Returns the texts of an experiment that a search looks through, besides the key.
    public func texts(ofExperiment key: Identifier) -> [String] { experiments[key]?.details.searchedTexts ?? [] }

    /// Returns the texts of a flag that a search looks through, besides the key.
    public func texts(ofFlag key: Identifier) -> [String] {
        flags[key].map { [$0.description] + ($0.tags ?? []).map(\.string) } ?? []
    }

    package func experiment(id: Identifier) -> ExperimentDefinition? { experiments.last(naming: id) }

    /// Returns the key of the delivery rule with a key or an id; `nil` if there is none.
    ///
    /// - Parameters:
    ///   - member: `key` or `id`.
    ///   - text: the value of the member.
    func deliveryRule(_ member: String, _ text: Identifier) -> Identifier? {
        let rules = rollouts.lazy.compactMap(\.object).flatMap { $0.objects("experiments") }
        return rules.last { $0.identifier(member) == text }?.identifier("key")
    }

    /// Checks that a key does not belong to a delivery rule, because these have no definitions that could be changed.
    ///
    /// - Throws: 409 if the key is that of a delivery rule, and of no experiment.
    public func expectNoDeliveryRule(_ key: Identifier) throws(CoreError) {
        guard experiments[key] != nil || deliveryRule("key", key) == nil else {
            throw CoreError(.conflict, "'\(key)' is a targeted rollout of a flag; change it in the datafile")
        }
    }

    /// Archives an experiment. Nobody is enrolled any more, and other experiments of its group may use its traffic.
    ///
    /// - Returns: false if there is no experiment with the key.
    /// - Throws: 422 if the traffic of the group cannot be divided.
    @discardableResult
    public mutating func archive(_ key: Identifier) throws(CoreError) -> Bool {
        guard var experiment = experiments[key] else { return false }
        experiment.status = ExperimentStatus.archived.rawValue
        try set(experiment)
        return true
    }

    // MARK: Served experiments

    /// Whether an experiment is served as a flag with the same key, so that every SDK and protocol can evaluate it. The
    /// value of the flag is the key of the variation. A flag that has the key already stays as it is.
    ///
    /// Experiments of earlier releases are not marked as served. They are recognized by two traits: the campaign has
    /// the id of the experiment, and the project was created over the API, so the account has the id of the project.
    func isServed(_ experiment: ExperimentDefinition) -> Bool {
        if let isServed = experiment.isServed { return isServed }
        return experiment.flagKey == nil && experiment.layerID == experiment.id
            && root["accountId"] == root["projectId"]
    }

    /// Adds the missing flags that serve experiments. An experiment that another flag has is not served.
    package mutating func serveExperiments() {
        // Only a touched experiment can lack its flag, unless an edit has removed flags or the edits are not known.
        let mayLackAny = generation == nil || flags.touched.contains { !flags.contains($0) }
        let candidates = mayLackAny ? Array(experiments) : experiments.touchedElements
        let unserved = candidates.filter { !flags.contains($0.key) && isServed($0) }
        guard !unserved.isEmpty else { return }
        let otherFlags = flags.filter { $0.content != .experiment }
        let experimentsOfOtherFlags = Set(otherFlags.flatMap { experiments(of: $0) }.map(\.id))
        for experiment in unserved where !experimentsOfOtherFlags.contains(experiment.id) {
            // Several experiments of an uploaded datafile may have one key.
            if !flags.contains(experiment.key) { flags.append(FlagDefinition(key: experiment.key, .experiment)) }
        }
    }
}

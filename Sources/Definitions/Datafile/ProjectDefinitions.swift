public import Bucketing
public import JSON

/// What a project defines, as values that an edit changes. The datafile is generated from them, see
/// ``generate(since:)``.
///
/// What the API does not edit, such as events, holdouts that a datafile brought and unknown members, stays as the
/// uploaded datafile has it.
public struct ProjectDefinitions: Sendable, Equatable {
    /// Once the datafile is generated, in its order: those outside of groups, then group by group.
    package var experiments = DefinitionList<ExperimentDefinition>()
    package var groups = DefinitionList<ExperimentGroup>()
    package var flags = DefinitionList<FlagDefinition>()
    /// What experiments may measure.
    public internal(set) var metrics = DefinitionList<MetricDefinition>()
    /// Those of the API. Others stay as an uploaded datafile has them.
    package var holdouts = DefinitionList<HoldoutDefinition>()
    /// Those of each flag, and audiences, as the datafile has them.
    package var rollouts: [JSONValue]
    package var audiences: [JSONValue]
    /// The groups to divide anew once several experiments have been changed; `nil` if each change does it.
    package var unallocatedGroups: Set<Identifier>?
    /// The variations of served experiments that share an id, when the datafile was generated.
    var sharedVariations: [Identifier: SharedVariation] = [:]
    /// Those of all experiments, when the datafile was generated.
    var variationIDs = VariationIDs()
    /// What the datafile was generated as; `nil` if it was read. Until then nothing is known of what it consists of.
    var generation: Generation?
    /// The project's, which the datafile may lack.
    package var sdkKey: String
    /// How long users keep a variation of an experiment that does not say it; `nil` if the server's configuration says it.
    public var assignmentLifetime: AssignmentLifetime?
    /// The datafile as it was read or last generated.
    package var root: JSONObject

    /// The definitions of a project without any.
    ///
    /// - Parameter projectID: also used as the account id.
    public init(projectID: String, sdkKey: String? = nil) {
        self.init(Datafile.empty(projectID: projectID, sdkKey: sdkKey))
    }

    /// The generated datafile.
    public var datafile: JSONValue { .object(root) }

    /// The datafile as JSON text.
    public var content: [UInt8] { datafile.encoded() }

    /// Returns the generated datafile in parts, and what differs from a former one.
    ///
    /// - Parameters:
    ///   - former: the definitions before an edit, and their datafile; `nil` if that was not stored in parts.
    ///   - edit: what differs between the two, if it is known.
    /// - Returns: `nil` if the datafile was not generated, or cannot be stored in parts.
    package func parts(
        replacing former: (definitions: ProjectDefinitions, parts: DatafileParts)?, _ edit: DatafileEdit? = nil
    ) -> (parts: DatafileParts, change: DatafileParts.Change)? {
        guard generation != nil else { return nil }
        return DatafileParts.edited(to: root, since: former.map { ($0.definitions.root, $0.parts) }, edit)
    }

    /// Returns a part of each experiment, in their order: of those outside of groups, and of those of each group.
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

    /// Whether a flag has an experiment.
    private func has(_ flag: FlagDefinition, _ id: Identifier) -> Bool {
        experiments(of: flag).contains { $0.id == id }
    }

    /// Returns the flags that have an experiment, without the one that serves it.
    package func flags(ofExperiment id: Identifier) -> [FlagDefinition] {
        flags.all(naming: [id] + experiments.keys(naming: id)).filter { has($0, id) }
    }

    /// Returns the flags that have an experiment, also the one that serves it.
    package func owners(of id: Identifier) -> [FlagDefinition] {
        let keys = experiments.keys(naming: id)
        return flags.all(naming: [id] + keys, orKeyed: keys).filter { has($0, id) }
    }

    /// What a search looks through besides the key.
    public func texts(ofExperiment key: Identifier) -> [String] { experiments[key]?.details.searchedTexts ?? [] }

    /// What a search looks through besides the key.
    public func texts(ofFlag key: Identifier) -> [String] {
        flags[key].map { [$0.description] + ($0.tags ?? []).map(\.string) } ?? []
    }

    package func experiment(id: Identifier) -> ExperimentDefinition? { experiments.last(naming: id) }

    /// Returns the key of the targeted rollout with a key or an id.
    func deliveryRule(_ member: String, _ text: Identifier) -> Identifier? {
        let rules = rollouts.lazy.compactMap(\.object).flatMap { $0.objects("experiments") }
        return rules.last { $0.identifier(member) == text }?.identifier("key")
    }

    /// - Throws: 409 if a key is that of a targeted rollout, and of no experiment.
    public func expectNoDeliveryRule(_ key: Identifier) throws(CoreError) {
        guard experiments[key] != nil || deliveryRule("key", key) == nil else {
            throw CoreError(.conflict, "'\(key)' is a targeted rollout of a flag; change it in the datafile")
        }
    }

    /// Archives an experiment: nobody is enrolled any more, and its traffic is free for the others of its group.
    ///
    /// - Returns: false if there is none.
    @discardableResult
    public mutating func archive(_ key: Identifier) throws(CoreError) -> Bool {
        guard var experiment = experiments[key] else { return false }
        experiment.status = ExperimentStatus.archived.rawValue
        try set(experiment)
        return true
    }

    // MARK: Served experiments

    /// Whether an experiment is served as a flag of the same key with a string variable `value`, the variation's key, so
    /// that every SDK and protocol can ask for it. A flag that has the key already stays as it is.
    ///
    /// Earlier releases marked nothing. Their experiments are known by the campaign, which they named like the
    /// experiment, in projects that the API made, whose account is named like the project.
    func isServed(_ experiment: ExperimentDefinition) -> Bool {
        if let isServed = experiment.isServed { return isServed }
        return experiment.flagKey == nil && experiment.layerID == experiment.id
            && root["accountId"] == root["projectId"]
    }

    /// Adds the flags that serve experiments and are missing.
    package mutating func serveExperiments() {
        var used: Set<Identifier>?
        // Only what was touched can lack its flag, unless a flag is gone, which may have served others.
        let isWhole = generation == nil || flags.touched.contains { !flags.contains($0) }
        let candidates = isWhole ? Array(experiments) : experiments.touchedElements
        for experiment in candidates where !flags.contains(experiment.key) && isServed(experiment) {
            if used == nil {
                used = Set(flags.filter { $0.content != .experiment }.flatMap { experiments(of: $0) }.map(\.id))
            }
            guard used?.contains(experiment.id) == false else { continue }
            flags.append(FlagDefinition(key: experiment.key, .experiment))
        }
    }
}

package import Bucketing
package import JSON

/// An experiment of a project, as a value that an edit changes. The project's datafile is generated from it; decisions
/// use the compiled ``Experiment`` of the datafile.
package struct ExperimentDefinition: KeyedDefinition {
    package struct Variation: Sendable, Equatable {
        package var id: Identifier
        package var key: Identifier
        /// Relative to the weights of the other variations; `nil` if none was given.
        package var weight: Double?
        /// The JSON object from the datafile, with members that Holdfast does not know.
        var source = JSONObject()
    }

    /// A variation that was removed. If one with its key is added again, it gets the former id, so that stored
    /// assignments apply again.
    package struct RetiredVariation: Sendable, Equatable {
        package var id: Identifier
        package var key: Identifier
    }

    package let id: Identifier
    package var key: Identifier
    /// A raw value of ``ExperimentStatus``, or any other text that an uploaded datafile has. While the experiment's
    /// flag is off, a running experiment is paused in the datafile, but stays running here.
    package var status = ExperimentStatus.running.rawValue
    package var variations: [Variation] = []
    package var retiredVariations: [RetiredVariation] = []
    /// Maps bucket values to variations. While enrollment is closed, this is the allocation that applies when it
    /// reopens.
    package var allocation = TrafficAllocation.empty
    /// Whether enrollment is closed: enrolled users keep their variation, and nobody else gets one.
    package var isClosed = false
    /// The percentage of users whom a contextual bandit admits; `nil` if the experiment is none. SDKs ask this server
    /// for the decisions of a contextual bandit. Its ``allocation`` has all bucket values, and splits the admitted
    /// users.
    package var gate: Double?
    /// The id of the group that has the experiment; `nil` for none.
    package var groupID: Identifier?
    /// The percentage of all users who are enrolled; `nil` outside of named groups, where ``allocation`` says it.
    package var traffic: Double?
    /// The conditions as they were given; null for everybody. `nil` if an uploaded datafile has an audience of another
    /// form, see ``GivenAudience``. If the experiment is a rule of a flag, these are the conditions that the datafile
    /// has.
    package var audience: JSONValue?
    /// The flag whose rule the experiment is, or was until the flag was deleted; `nil` for other experiments.
    package var flagKey: Identifier?
    /// Whether a flag with the experiment's key serves it; `nil` if the datafile does not say.
    var isServed: Bool?
    /// How long users keep their variation; `nil` to use the project's lifetime.
    package var assignmentLifetime: AssignmentLifetime?
    /// Whether the experiment is no longer a draft but has never run, so no user has an assignment yet.
    package var hasNeverRun = false
    /// What SDKs do not get, such as texts for people, metrics and the schedule.
    @SharedPart package var details = ExperimentDetails()
    /// How the experiment was concluded; `nil` if it is not concluded.
    package var conclusion: Conclusion?
    /// The JSON object from the datafile. Writing the experiment keeps the members that Holdfast does not know.
    package var source = JSONObject()

    package var listKey: Identifier { key }
    package var names: [Identifier] { [id] }
    /// Whether it has results by metrics, or changes with time.
    package var isNotable: Bool { !details.metrics.isEmpty || isTimed }
    /// Whether its schedule, ramp or bandit still has something to do.
    var isTimed: Bool {
        details.schedule?.isPending ?? false || details.ramp?.isPending ?? false || details.bandit != nil
    }
    package var isArchived: Bool { status == ExperimentStatus.archived.rawValue }
    package var isDraft: Bool { status == ExperimentStatus.draft.rawValue }
    package var isConcluded: Bool { status == ExperimentStatus.concluded.rawValue }
    /// The variation that a concluded experiment delivers.
    package var winner: Variation? {
        isConcluded ? conclusion?.winner.flatMap { id in variations.last { $0.id == id } } : nil
    }
    /// The id of the campaign that contains the experiment; by default that of the experiment.
    var layerID: Identifier { source.identifier("layerId") ?? id }
    /// The id of the audience in the datafile that belongs to this experiment alone.
    var audienceID: String { GivenAudience.id(of: id) }

    init(id: Identifier, key: Identifier) {
        self.id = id
        self.key = key
        audience = .null
    }
}

// MARK: - Traffic

extension TrafficAllocation {
    package static let empty = TrafficAllocation(ranges: [])
}

extension ExperimentDefinition {
    package var enrollment: ExperimentChange.Enrollment {
        get { isClosed ? .closed : .open }
        set { isClosed = newValue == .closed }
    }

    /// The percentage of users who are enrolled, also in a group.
    package var enrolledTraffic: Double { traffic ?? gate ?? split.traffic }

    package var split: VariationSplit {
        VariationSplit(
            ids: variations.map(\.id), given: variations.compactMap(\.weight), shares: allocation.shares)
    }

    /// Gives the experiment a percentage of users and divides them among its variations. As few bucket values as
    /// possible move to another variation.
    ///
    /// - Parameters:
    ///   - former: the division before the change; `nil` for a new experiment.
    ///   - dividesAnew: whether the variations or their weights have changed.
    ///   - isGrouped: whether the experiment is in a named group.
    mutating func allocate(
        traffic percentage: Double, since former: VariationSplit?, dividesAnew: Bool = false, isGrouped: Bool
    ) {
        // A group or a contextual bandit admits the percentage of users. The allocation of the experiment then has all
        // bucket values, and splits those who are admitted.
        let ownTraffic = isGrouped || gate != nil ? 100 : percentage
        if gate != nil { gate = isGrouped ? 100 : percentage }
        if dividesAnew || former?.traffic != ownTraffic {
            if !dividesAnew, let former {
                // Weights that were not given are kept now: the rounded shares of little traffic would lose them.
                let weights = former.weights
                for index in variations.indices { variations[index].weight = weights[variations[index].id] ?? 0 }
            }
            let shares = allocation.shares
            // If only the traffic grows, no variation loses users.
            let isGrown = !dividesAnew && ownTraffic >= former?.traffic ?? 0
            allocation = allocation.reallocated(
                to: TrafficAllocation.weights(
                    of: variations.map(\.id), ratio: variations.map { $0.weight ?? 1 }, traffic: ownTraffic,
                    atLeast: isGrown ? variations.map { shares[$0.id] ?? 0 } : nil))
        }
        traffic = isGrouped ? percentage : nil
    }
}

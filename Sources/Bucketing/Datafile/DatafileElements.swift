import JSON

// The reuse of the elements of a former datafile, in three steps: ``DatafileElements`` keeps the elements of a datafile
// for the next one. ``FormerElements`` finds those that need not be read again. ``DatafileChanges`` finds the
// experiments and flags that need not be linked again.

/// The parsed and compiled elements of a datafile. The next datafile usually differs in one element; it reuses all
/// others.
struct DatafileElements: Sendable {
    /// The experiments and delivery rules in the order in which they are read.
    var experiments: [ReadElement<ExperimentModel>] = []
    var flags: [ReadElement<FlagModel>] = []
    /// The compiled conditions of audiences, by the id of the audience.
    var conditions: [Identifier: Condition] = [:]
    /// The variable values of variations as the datafile has them, by variation id and variable id.
    var variableValues: [Identifier: [Identifier: String]] = [:]
    /// Whether all experiments and flags have different keys and ids, and all variations different ids.
    var areUnique = false
}

/// Finds the elements of the former datafile again, in order.
struct FormerElements<Model: Sendable> {
    private let elements: [ReadElement<Model>]
    /// The index of the former element that is expected next.
    private var next = 0
    /// The former elements that the new datafile does not have.
    private(set) var missing: [Model] = []

    init(_ elements: [ReadElement<Model>]) {
        self.elements = elements
    }

    /// Returns the former model of an element that has not changed; `nil` if the element must be read.
    ///
    /// Call this for the elements of the new datafile in their order. Each element is compared with the next two former
    /// elements. So the elements after a replaced or removed element are found again. The elements after an inserted
    /// element are not found, and are read again.
    ///
    /// Elements that the edit did not touch share their storage with the former ones, so comparing them is fast.
    mutating func model(of source: JSONValue) -> Model? {
        for index in next..<min(next + 2, elements.count) where elements[index].source == source {
            if index > next { missing.append(elements[next].model) }
            next = index + 1
            return elements[index].model
        }
        skip()
        return nil
    }

    /// Adds the remaining former elements to ``missing``.
    mutating func end() {
        while next < elements.count { skip() }
    }

    /// Adds the next former element to ``missing``.
    private mutating func skip() {
        guard next < elements.count else { return }
        missing.append(elements[next].model)
        next += 1
    }
}

/// The parts of a datafile that differ from the former one's. ``DatafileReader`` collects them; ``DatafileLinker`` asks
/// which experiments and flags it can take over as they are linked.
struct DatafileChanges {
    let former: Datafile
    // Whether the lists of audiences, groups and holdouts are as in the former datafile.
    private let keepsAudiences: Bool
    private let keepsGroups: Bool
    private let keepsHoldouts: Bool
    /// The ids of the experiments that are new, changed or gone.
    private var experimentIDs: Set<Identifier> = []
    /// The keys of these experiments, and of others with the same ids.
    private var experimentKeys: Set<Identifier> = []
    /// The ids of the variations of the same experiments.
    private var variationIDs: Set<Identifier> = []
    /// The keys of the flags that are new, changed or gone.
    private var flagKeys: Set<Identifier> = []

    init(_ source: JSONValue, since former: Datafile) {
        self.former = former
        let old = former.source.object
        let new = source.object
        func keeps(_ members: String...) -> Bool { members.allSatisfy { old?[$0] == new?[$0] } }
        keepsAudiences = keeps("audiences", "typedAudiences")
        keepsGroups = keeps("groups")
        keepsHoldouts = keeps("holdouts", "localHoldouts")
    }

    /// Notes the experiments that are new, changed or gone.
    ///
    /// - Parameter all: the experiments of the new datafile, several of which may have one id.
    mutating func add(experiments changed: [ExperimentModel], of all: [ReadElement<ExperimentModel>]) {
        experimentIDs = Set(changed.map(\.id))
        for experiment in changed { note(experiment) }
        // If several experiments have one id, the last one counts. The change may have made another one the last.
        for element in all where experimentIDs.contains(element.model.id) { note(element.model) }
    }

    private mutating func note(_ experiment: ExperimentModel) {
        experimentKeys.insert(experiment.key)
        variationIDs.formUnion(experiment.variations.map(\.id))
    }

    /// Notes the flags that are new, changed or gone.
    mutating func add(flags changed: [FlagModel]) {
        flagKeys = Set(changed.map(\.key))
    }

    /// Returns the former experiment if linking a model would give an equal one; `nil` if the model must be linked.
    func unchanged(_ model: ExperimentModel) -> Experiment? {
        guard !experimentIDs.contains(model.id), !experimentKeys.contains(model.key),
            let experiment = former.experiment(id: model.id)
        else { return nil }
        // The variations of a feature rollout (`fr`) depend on the rules of its flag.
        let dependsOnFlag = model.type == "fr"
        let hasSameAudience = keepsAudiences || model.audienceConditions == []
        let hasSameGroup = keepsGroups || (model.groupID == nil && experiment.exclusionGroup == nil)
        return keepsHoldouts && hasSameAudience && hasSameGroup && !dependsOnFlag ? experiment : nil
    }

    /// Returns the former flag if linking a model would give an equal one; `nil` if the model must be linked.
    ///
    /// - Parameters:
    ///   - experiments: the linked experiments of the flag.
    ///   - rollout: the linked delivery rules of the flag.
    func unchanged(_ model: FlagModel, _ experiments: [Experiment], _ rollout: Rollout?) -> Flag? {
        guard keepsHoldouts, !flagKeys.contains(model.key), let flag = former.flag(key: model.key) else { return nil }
        let hasSameExperiments = flag.experiments.elementsEqual(experiments, by: ===)
        let hasSameRollout =
            flag.rollout?.id == rollout?.id
            && (flag.rollout?.rules ?? []).elementsEqual(rollout?.rules ?? [], by: ===)
        guard hasSameExperiments, hasSameRollout else { return nil }
        // A changed experiment may have a variation with the same id, whose values the flag would get.
        let sharesVariation = flag.variations.contains { variationIDs.contains($0.id) }
        return sharesVariation ? nil : flag
    }
}

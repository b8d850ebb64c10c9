import JSON

// What a datafile takes over from the former one. ``DatafileElements`` is what is kept for the next datafile;
// ``FormerElements`` finds the elements that need not be read again, and ``DatafileChanges`` the experiments and flags
// that need not be linked again.

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
    /// Call this for the elements of the new datafile in order. A replaced element and a removed one are recognized,
    /// because an element is compared with two former ones. After an insertion, all later elements are read again.
    ///
    /// Values that the edit has left alone share their storage with the former ones, so comparing them is fast.
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

    /// Notes that the next former element is missing.
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
        let (old, new) = (former.source.object, source.object)
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
        // Of several experiments with one id the last one counts, and the change may have made that another one.
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
        guard keepsHoldouts, keepsAudiences || model.audienceConditions == [],
            // The variations of a feature rollout (`fr`) depend on the rules of its flag.
            model.type != "fr", !experimentIDs.contains(model.id), !experimentKeys.contains(model.key),
            let experiment = former.experiment(id: model.id),
            keepsGroups || model.groupID == nil && experiment.exclusionGroup == nil
        else { return nil }
        return experiment
    }

    /// Returns the former flag if linking a model would give an equal one; `nil` if the model must be linked.
    func unchanged(_ model: FlagModel, _ experiments: [Experiment], _ rollout: Rollout?) -> Flag? {
        guard keepsHoldouts, !flagKeys.contains(model.key), let flag = former.flag(key: model.key),
            flag.experiments.elementsEqual(experiments, by: ===),
            (flag.rollout?.rules ?? []).elementsEqual(rollout?.rules ?? [], by: ===),
            flag.rollout?.id == rollout?.id, !flag.variations.contains(where: { variationIDs.contains($0.id) })
        else { return nil }
        return flag
    }
}

import JSON

/// The parsed and compiled elements of a datafile. The next datafile usually differs in one element; it reuses all others.
struct DatafileElements: Sendable {
    /// The experiments and delivery rules in the order in which they are read.
    var experiments: [ReadElement<ExperimentModel>] = []
    var flags: [ReadElement<FlagModel>] = []
    /// By the id of the audience.
    var conditions: [Identifier: Condition] = [:]
    /// The variable values of variations, by variation id and variable id.
    var texts: [Identifier: [Identifier: String]] = [:]
    /// Whether all experiments and flags have different keys and ids, and all variations different ids.
    var areUnique = false
}

/// Finds the elements of the former datafile again, in order.
struct FormerElements<Model: Sendable> {
    private let elements: [ReadElement<Model>]
    private var next = 0
    /// Those that the new datafile does not have.
    private(set) var missing: [Model] = []

    init(_ elements: [ReadElement<Model>]) {
        self.elements = elements
    }

    /// Returns the former model of an element that has not changed; `nil` if the element must be read. Detects one
    /// element that was replaced or removed between two calls. After any other difference, all later elements are read.
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

    private mutating func skip() {
        guard next < elements.count else { return }
        missing.append(elements[next].model)
        next += 1
    }
}

/// The parts of a datafile that differ from the former one's.
struct DatafileChanges {
    let former: Datafile
    /// Whether all audiences are as before.
    private let keepsAudiences: Bool
    private let keepsGroups: Bool
    private let keepsHoldouts: Bool
    /// The ids of the experiments that are new, changed or gone.
    private var ids: Set<Identifier> = []
    private var keys: Set<Identifier> = []
    private var variationIDs: Set<Identifier> = []
    private var flagKeys: Set<Identifier> = []

    init(_ source: JSONValue, since former: Datafile) {
        self.former = former
        let (old, new) = (former.source.object, source.object)
        func keeps(_ names: String...) -> Bool { names.allSatisfy { old?[$0] == new?[$0] } }
        keepsAudiences = keeps("audiences", "typedAudiences")
        keepsGroups = keeps("groups")
        keepsHoldouts = keeps("holdouts", "localHoldouts")
    }

    /// Notes the experiments that are new, changed or gone.
    ///
    /// - Parameter all: those of the new datafile, several of which may have one id.
    mutating func add(experiments changed: [ExperimentModel], of all: [ReadElement<ExperimentModel>]) {
        ids = Set(changed.map(\.id))
        // Which of several experiments of an id counts may have changed, too.
        for experiment in changed + all.lazy.map(\.model).filter({ ids.contains($0.id) }) {
            keys.insert(experiment.key)
            variationIDs.formUnion(experiment.variations.map(\.id))
        }
    }

    mutating func add(flags changed: [FlagModel]) {
        flagKeys = Set(changed.map(\.key))
    }

    /// Returns the former experiment if a model would be linked to the same.
    func unchanged(_ model: ExperimentModel) -> Experiment? {
        guard keepsHoldouts, keepsAudiences || model.audienceConditions == [],
            // Its variations depend on its flag's rules.
            model.type != "fr", !ids.contains(model.id), !keys.contains(model.key),
            let experiment = former.experiment(id: model.id),
            keepsGroups || model.groupID == nil && experiment.exclusionGroup == nil
        else { return nil }
        return experiment
    }

    /// Returns the former flag if a model would be linked to the same.
    func unchanged(_ model: FlagModel, _ experiments: [Experiment], _ rollout: Rollout?) -> Flag? {
        guard keepsHoldouts, !flagKeys.contains(model.key), let flag = former.flag(key: model.key),
            flag.experiments.elementsEqual(experiments, by: ===),
            (flag.rollout?.rules ?? []).elementsEqual(rollout?.rules ?? [], by: ===),
            flag.rollout?.id == rollout?.id, !flag.variations.contains(where: { variationIDs.contains($0.id) })
        else { return nil }
        return flag
    }
}

import JSON

/// What a datafile was compiled from, element by element. Of the next datafile, which usually differs in one of them,
/// only that one is compiled.
struct DatafileElements {
    final class Element<Parsed: Sendable>: Sendable {
        let source: JSONValue
        let parsed: Parsed

        init(source: JSONValue, parsed: Parsed) {
            self.source = source
            self.parsed = parsed
        }
    }

    /// The experiments and delivery rules in the order in which they are read.
    var experiments: [Element<ParsedExperiment>] = []
    var flags: [Element<ParsedFlag>] = []
    /// By the id of the audience.
    var conditions: [Identifier: Condition] = [:]
    /// The variable values of variations, by variation id and variable id.
    var texts: [Identifier: [Identifier: String]] = [:]
    /// Whether no two experiments or flags have one key or id, and no two variations one id.
    var areUnique = false
}

extension DatafileElements: Sendable {}

/// Finds the elements of the former datafile again, in order.
struct FormerElements<Parsed: Sendable> {
    private let elements: [DatafileElements.Element<Parsed>]
    private var next = 0
    /// Those that the new datafile does not have.
    private(set) var missing: [Parsed] = []

    init(_ elements: [DatafileElements.Element<Parsed>]) {
        self.elements = elements
    }

    /// Returns what an element was parsed to, if it is as before. Between two calls one element may have been replaced
    /// or removed; behind a greater difference the rest is parsed again.
    ///
    /// Values that the edit has left alone share their storage with the former ones, so comparing them is fast.
    mutating func parsed(of source: JSONValue) -> Parsed? {
        for index in next..<min(next + 2, elements.count) where elements[index].source == source {
            if index > next { missing.append(elements[next].parsed) }
            next = index + 1
            return elements[index].parsed
        }
        skip()
        return nil
    }

    /// Notes that no further element is sought.
    mutating func end() {
        while next < elements.count { skip() }
    }

    private mutating func skip() {
        guard next < elements.count else { return }
        missing.append(elements[next].parsed)
        next += 1
    }
}

/// The parts of a datafile that differ from the former one's.
struct DatafileChanges {
    let former: Datafile
    /// Whether all audiences, groups and holdouts are as before.
    private let keepsAudiences: Bool
    private let keepsGroups: Bool
    private let keepsHoldouts: Bool
    /// Of experiments, old and new.
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
    mutating func add(experiments changed: [ParsedExperiment], of all: [DatafileElements.Element<ParsedExperiment>]) {
        ids = Set(changed.map(\.id))
        // Which of several experiments of an id counts may have changed, too.
        for experiment in changed + all.lazy.map(\.parsed).filter({ ids.contains($0.id) }) {
            keys.insert(experiment.key)
            variationIDs.formUnion(experiment.variations.map(\.id))
        }
    }

    mutating func add(flags changed: [ParsedFlag]) {
        flagKeys = Set(changed.map(\.key))
    }

    /// Returns the former experiment if a parsed one would become the same.
    func unchanged(_ parsed: ParsedExperiment) -> Experiment? {
        guard keepsHoldouts, keepsAudiences || parsed.audienceConditions == [],
            // Its variations depend on its flag's rules.
            parsed.type != "fr", !ids.contains(parsed.id), !keys.contains(parsed.key),
            let experiment = former.experiment(id: parsed.id),
            keepsGroups || parsed.groupID == nil && experiment.exclusionGroup == nil
        else { return nil }
        return experiment
    }

    /// Returns the former flag if a parsed one would become the same.
    func unchanged(_ parsed: ParsedFlag, _ experiments: [Experiment], _ rollout: Rollout?) -> Flag? {
        guard keepsHoldouts, !flagKeys.contains(parsed.key), let flag = former.flag(key: parsed.key),
            flag.experiments.elementsEqual(experiments, by: ===),
            (flag.rollout?.rules ?? []).elementsEqual(rollout?.rules ?? [], by: ===),
            flag.rollout?.id == rollout?.id, !flag.variations.contains(where: { variationIDs.contains($0.id) })
        else { return nil }
        return flag
    }
}

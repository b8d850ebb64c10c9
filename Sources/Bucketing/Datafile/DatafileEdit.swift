public import JSON

/// The difference of two datafiles in which some experiments and flags were changed in place and everything else is
/// equal. Most edits are of this kind, and can be compiled and stored without a look at the whole datafile.
public struct DatafileEdit: Sendable {
    /// The indices of the changed elements in `experiments`, without those of groups.
    public let experiments: [Int]
    /// The indices of the changed elements in `featureFlags`.
    public let flags: [Int]
    /// The indices of all flags that have a changed experiment; `nil` if they are not known.
    let dependentFlags: [Int]?

    /// The maximum number of changed elements. With more, the whole datafile is compiled.
    private static let limit = 64
    private static let lists = ["experiments", "featureFlags"]
    /// The members that may differ, because they are read again for each datafile.
    private static let details = ["revision", Annotations.member]

    /// An edit whose author knows what it has changed.
    ///
    /// - Returns: `nil` if it has changed too many elements.
    public init?(experiments: [Int], flags: [Int], dependentFlags: [Int]) {
        guard experiments.count + flags.count <= Self.limit else { return nil }
        self.experiments = experiments
        self.flags = flags
        self.dependentFlags = dependentFlags
    }

    /// - Returns: `nil` if the datafiles differ in any other way, or in too many elements.
    public init?(from former: JSONObject, to edited: JSONObject) {
        guard Self.areSameOtherwise(former, edited),
            let experiments = Self.changes(from: former["experiments"], to: edited["experiments"]),
            let flags = Self.changes(from: former["featureFlags"], to: edited["featureFlags"]),
            experiments.count + flags.count <= Self.limit
        else { return nil }
        self.experiments = experiments
        self.flags = flags
        dependentFlags = nil
    }

    /// Whether the edit can lead from one datafile to the other: it has places of their lists, and they have nothing else that
    /// differs.
    func leads(from former: JSONObject, to edited: JSONObject) -> Bool {
        func count(_ datafile: JSONObject, _ list: String) -> Int { datafile[list]?.array?.count ?? 0 }
        let counts = Self.lists.map { count(edited, $0) }
        return counts == Self.lists.map { count(former, $0) } && Self.areSameOtherwise(former, edited)
            && experiments.allSatisfy { $0 < counts[0] }
            && (flags + (dependentFlags ?? [])).allSatisfy { $0 < counts[1] }
    }

    /// Whether two datafiles have the same members, with equal values but for the lists and the details.
    private static func areSameOtherwise(_ former: JSONObject, _ edited: JSONObject) -> Bool {
        for member in edited where !lists.contains(member.key) && !details.contains(member.key) {
            guard former[member.key] == member.value else { return false }
        }
        return former.allSatisfy { details.contains($0.key) || edited[$0.key] != nil }
    }

    /// Returns the indices of the elements that differ; `nil` if the lists have different lengths. Elements that the
    /// edit did not touch share their storage with the former ones, so comparing them is fast.
    private static func changes(from former: JSONValue?, to edited: JSONValue?) -> [Int]? {
        let former = former?.array ?? []
        let edited = edited?.array ?? []
        guard former.count == edited.count else { return nil }
        return edited.indices.filter { former[$0] != edited[$0] }
    }
}

extension Datafile {
    /// Compiles only the changes in a source, and takes everything else from this datafile.
    ///
    /// - Parameter known: what differs in the lists, if the caller knows it.
    /// - Returns: `nil` if the difference is not a ``DatafileEdit``, or if anything is wrong. The caller then compiles
    ///   the whole datafile, which also reports the problems.
    func edited(to source: JSONValue, _ known: DatafileEdit? = nil) -> Datafile? {
        guard elements.areUnique, let former = self.source.object, let edited = source.object,
            let edit = known ?? DatafileEdit(from: former, to: edited), let revision = edited["revision"]?.string,
            known == nil || edit.leads(from: former, to: edited)
        else { return nil }
        var next = Replacement(self)
        for index in edit.experiments {
            guard let element = edited["experiments"]?.array?[index], next.setExperiment(element, at: index) else {
                return nil
            }
        }
        for index in edit.flags {
            guard let element = edited["featureFlags"]?.array?[index], next.setFlag(element, at: index) else {
                return nil
            }
        }
        next.remakeFlags(among: edit.dependentFlags, besides: Set(edit.flags))
        return Datafile(self, source, revision: revision, next)
    }

    /// The parts of a datafile that an edit changes.
    struct Replacement {
        private(set) var experiments: [Experiment]
        private(set) var flags: [Flag]
        private(set) var elements: DatafileElements
        /// The experiments that are new, by their ids, and those whose place they take.
        private var changed: [Identifier: Experiment] = [:]
        private var replaced: [Experiment] = []
        private let former: Datafile
        private let holdoutVariations: [Variation]

        fileprivate init(_ former: Datafile) {
            self.former = former
            (experiments, flags, elements) = (former.experiments, former.flags, former.elements)
            holdoutVariations = former.holdouts.flatMap(\.variations)
        }

        /// - Returns: false if the change also affects other experiments or holdouts, or if anything is wrong.
        fileprivate mutating func setExperiment(_ element: JSONValue, at index: Int) -> Bool {
            var reader = MemberReader()
            let model = reader.experiment(MemberReader.Node(element: element, index, of: ["experiments"]))
            let known = elements.experiments[index].model
            guard reader.problems.isEmpty, element.object != nil, model.id == known.id, model.key == known.key,
                model.groupID == nil, known.groupID == nil, model.type != "fr", known.type != "fr",
                !former.holdouts.contains(where: { $0.key == model.key })
            else { return false }
            guard setTexts(of: model.variations, replacing: known.variations) else { return false }
            let experiment = Experiment(
                model, audience: Condition.ofExperiment(model.audienceConditions, audiences: elements.conditions),
                exclusionGroup: nil, variationsOfKey: model.variations)
            elements.experiments[index] = ReadElement(source: element, model: model)
            replaced.append(experiments[index])
            experiments[index] = experiment
            changed[model.id] = experiment
            return true
        }

        /// - Returns: false if anything else has the id of a variation.
        private mutating func setTexts(of variations: [Variation], replacing known: [Variation]) -> Bool {
            let areSame = variations.elementsEqual(known) {
                $0.id == $1.id && $0.variableValues == $1.variableValues
            }
            if areSame { return true }
            for variation in known { elements.texts[variation.id] = nil }
            for variation in variations {
                guard elements.texts[variation.id] == nil, !holdoutVariations.contains(where: { $0.id == variation.id })
                else { return false }
                elements.texts[variation.id] = variation.variableValues
            }
            return true
        }

        /// - Returns: false if anything is wrong, or if the flag has an experiment of the type feature rollout (`fr`),
        ///   whose variations depend on the flag.
        fileprivate mutating func setFlag(_ element: JSONValue, at index: Int) -> Bool {
            var reader = MemberReader()
            let model = reader.flag(
                MemberReader.Node(element: element, index, of: ["featureFlags"]),
                hasExperiment: { former.experiment(id: $0).map { $0.type != "fr" } ?? false },
                hasRollout: { id in former.rollouts.contains { $0.id == id } })
            guard reader.problems.isEmpty, element.object != nil, model.key == elements.flags[index].model.key else {
                return false
            }
            elements.flags[index] = ReadElement(source: element, model: model)
            makeFlag(at: index)
            return true
        }

        /// Rebuilds the flags of changed experiments.
        ///
        /// - Parameters:
        ///   - candidates: the indices of flags that have them; `nil` if they are not known.
        ///   - known: the indices of flags that are up to date already.
        fileprivate mutating func remakeFlags(among candidates: [Int]?, besides known: Set<Int>) {
            guard !replaced.isEmpty else { return }
            for index in candidates ?? Array(flags.indices) where !known.contains(index) {
                if flags[index].experiments.contains(where: { rule in replaced.contains { $0 === rule } }) {
                    makeFlag(at: index)
                }
            }
        }

        private mutating func makeFlag(at index: Int) {
            let model = elements.flags[index].model
            flags[index] = Flag(
                model, experiments: model.experimentIDs.compactMap { changed[$0] ?? former.experiment(id: $0) },
                rollout: former.rollouts.last { $0.id == model.rolloutID }, holdoutVariations: holdoutVariations,
                texts: elements.texts)
        }
    }
}

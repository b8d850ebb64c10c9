public import JSON

/// An edit that changes some experiments and flags in place and nothing else. Most edits are of this kind, and are
/// compiled and stored without a look at the whole datafile: see ``Datafile/edited(to:_:)``.
public struct DatafileEdit: Sendable {
    /// The indices of the changed elements in the datafile's list `experiments`. Experiments of groups are in other
    /// lists.
    public let experiments: [Int]
    /// The indices of the changed elements in the datafile's list `featureFlags`.
    public let flags: [Int]
    /// The indices of all flags that have a changed experiment; `nil` if they are not known.
    let dependentFlags: [Int]?

    /// The maximum number of changed elements. With more, the whole datafile is compiled.
    private static let limit = 64
    /// The members that are compared element by element.
    private static let lists = ["experiments", "featureFlags"]
    /// The members that may differ in any way, because they are read again for each datafile.
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

    /// Compares two datafiles.
    ///
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
    /// Compiles an edited datafile by compiling only the changed elements, and taking everything else from this
    /// datafile.
    ///
    /// - Parameter known: what differs in the lists, if the caller knows it.
    /// - Returns: `nil` if the difference is not a ``DatafileEdit``, if an experiment of it affects other elements (see
    ///   ``Replacement/setExperiment(_:at:)``), or if anything is wrong. The caller then compiles the whole datafile,
    ///   which also reports the problems.
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
        next.relinkFlags(among: edit.dependentFlags, except: Set(edit.flags))
        return Datafile(self, source, revision: revision, next)
    }

    /// The parts of a datafile that an edit changes. Begins with those of the former datafile; the elements that were
    /// edited are then set one by one.
    struct Replacement {
        private(set) var experiments: [Experiment]
        private(set) var flags: [Flag]
        private(set) var elements: DatafileElements
        /// The new versions of the edited experiments, by id.
        private var changed: [Identifier: Experiment] = [:]
        /// The former versions of the edited experiments.
        private var replaced: [Experiment] = []
        private let former: Datafile
        private let holdoutVariations: [Variation]

        fileprivate init(_ former: Datafile) {
            self.former = former
            experiments = former.experiments
            flags = former.flags
            elements = former.elements
            holdoutVariations = former.holdouts.flatMap(\.variations)
        }

        /// Compiles an edited experiment.
        ///
        /// - Returns: false if anything is wrong, or if the change can affect more than the experiment and its flags:
        ///   if it changes the id or key, or if the experiment is in a group, is a feature rollout (`fr`), whose
        ///   variations depend on its flag, or has the key of a holdout.
        fileprivate mutating func setExperiment(_ element: JSONValue, at index: Int) -> Bool {
            var reader = MemberReader()
            let model = reader.experiment(MemberReader.Node(element: element, index, of: ["experiments"]))
            let known = elements.experiments[index].model
            guard reader.problems.isEmpty, element.object != nil, model.id == known.id, model.key == known.key,
                model.groupID == nil, known.groupID == nil, model.type != "fr", known.type != "fr",
                !former.holdouts.contains(where: { $0.key == model.key })
            else { return false }
            guard setValues(of: model.variations, replacing: known.variations) else { return false }
            let experiment = Experiment(
                model, audience: Condition.ofExperiment(model.audienceConditions, audiences: elements.conditions),
                exclusionGroup: nil, variationsOfKey: model.variations)
            elements.experiments[index] = ReadElement(source: element, model: model)
            replaced.append(experiments[index])
            experiments[index] = experiment
            changed[model.id] = experiment
            return true
        }

        /// Replaces the variable values of an experiment's variations.
        ///
        /// - Returns: false if another variation has the id of one of these.
        private mutating func setValues(of variations: [Variation], replacing known: [Variation]) -> Bool {
            let areSame = variations.elementsEqual(known) { new, old in
                new.id == old.id && new.variableValues == old.variableValues
            }
            if areSame { return true }
            for variation in known { elements.variableValues[variation.id] = nil }
            for variation in variations {
                guard elements.variableValues[variation.id] == nil,
                    !holdoutVariations.contains(where: { $0.id == variation.id })
                else { return false }
                elements.variableValues[variation.id] = variation.variableValues
            }
            return true
        }

        /// Compiles an edited flag.
        ///
        /// - Returns: false if anything is wrong, or if the flag has a feature rollout (`fr`), whose variations depend
        ///   on the flag.
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
            linkFlag(at: index)
            return true
        }

        /// Links the flags of the edited experiments again.
        ///
        /// - Parameters:
        ///   - candidates: the indices of the flags that have an edited experiment; `nil` if they are not known.
        ///   - linked: the indices of the flags that are linked already.
        fileprivate mutating func relinkFlags(among candidates: [Int]?, except linked: Set<Int>) {
            guard !replaced.isEmpty else { return }
            for index in candidates ?? Array(flags.indices) where !linked.contains(index) {
                if flags[index].experiments.contains(where: { rule in replaced.contains { $0 === rule } }) {
                    linkFlag(at: index)
                }
            }
        }

        /// Creates a flag from its model and the experiments as they are now.
        private mutating func linkFlag(at index: Int) {
            let model = elements.flags[index].model
            flags[index] = Flag(
                model, experiments: model.experimentIDs.compactMap { changed[$0] ?? former.experiment(id: $0) },
                rollout: former.rollouts.last { $0.id == model.rolloutID }, holdoutVariations: holdoutVariations,
                variableValues: elements.variableValues)
        }
    }
}

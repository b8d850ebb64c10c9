import JSON

extension Datafile {
    /// The parts of a datafile that differ after a ``DatafileEdit``: its experiments and flags.
    ///
    /// A replacement begins with the parts of the former datafile. ``setExperiment(_:at:)`` and ``setFlag(_:at:)``
    /// replace the edited elements. Then ``relinkFlags(except:)`` links the flags that still have the former
    /// experiments.
    struct Replacement {
        private(set) var experiments: [Experiment]
        private(set) var flags: [Flag]
        private(set) var elements: DatafileElements
        /// The edited experiments, by id.
        private var editedExperiments: [Identifier: Experiment] = [:]
        /// The former versions of the edited experiments.
        private var replacedExperiments: [Experiment] = []
        private let former: Datafile
        /// The variations of all holdouts.
        private let holdoutVariations: [Variation]

        init(_ former: Datafile) {
            self.former = former
            experiments = former.experiments
            flags = former.flags
            elements = former.elements
            holdoutVariations = former.holdouts.flatMap(\.variations)
        }

        /// Compiles an edited experiment.
        ///
        /// - Returns: false if the element has a problem, or if the change can affect more than the experiment and its
        ///   flags: the id or the key changes, the experiment is in a group, or ``affectsOthers(_:)``.
        mutating func setExperiment(_ element: JSONValue, at index: Int) -> Bool {
            var reader = MemberReader()
            let model = reader.experiment(MemberReader.Node(element: element, index, of: ["experiments"]))
            guard reader.problems.isEmpty, element.object != nil else { return false }
            let formerModel = elements.experiments[index].model
            guard model.id == formerModel.id, model.key == formerModel.key, !affectsOthers(model),
                !affectsOthers(formerModel)
            else { return false }
            guard setValues(of: model.variations, replacing: formerModel.variations) else { return false }
            let experiment = Experiment(
                model, audience: Condition.ofExperiment(model.audienceConditions, audiences: elements.conditions),
                exclusionGroup: nil, variationsOfKey: model.variations)
            elements.experiments[index] = ReadElement(source: element, model: model)
            replacedExperiments.append(experiments[index])
            experiments[index] = experiment
            editedExperiments[model.id] = experiment
            return true
        }

        /// Whether a change of an experiment can affect other experiments and flags. This is so in three cases:
        ///
        /// - The experiment is in a group.
        /// - It is a feature rollout (`fr`), whose variations depend on its flag.
        /// - It has the key of a holdout, whose variations replace its own.
        private func affectsOthers(_ experiment: ExperimentModel) -> Bool {
            experiment.groupID != nil || experiment.type == "fr"
                || former.holdouts.contains { $0.key == experiment.key }
        }

        /// Replaces the variable values of an experiment's variations.
        ///
        /// - Returns: false if one of the variations has the id of another experiment's or a holdout's variation. SDKs
        ///   look up values by the id of the variation alone, so the change would affect the other one.
        private mutating func setValues(of variations: [Variation], replacing formerVariations: [Variation]) -> Bool {
            let areSame = variations.elementsEqual(formerVariations) { new, old in
                new.id == old.id && new.variableValues == old.variableValues
            }
            if areSame { return true }
            for variation in formerVariations { elements.variableValues[variation.id] = nil }
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
        /// - Returns: false if the element has a problem, if the key changes, or if the flag has a feature rollout
        ///   (`fr`), whose variations depend on the flag.
        mutating func setFlag(_ element: JSONValue, at index: Int) -> Bool {
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

        /// Links the flags that have an edited experiment with its new version.
        ///
        /// - Parameter linkedFlags: the indices of the flags that are linked already.
        mutating func relinkFlags(except linkedFlags: Set<Int>) {
            guard !replacedExperiments.isEmpty else { return }
            for index in flags.indices where !linkedFlags.contains(index) {
                let hasReplaced = flags[index].experiments.contains { experiment in
                    replacedExperiments.contains { $0 === experiment }
                }
                if hasReplaced { linkFlag(at: index) }
            }
        }

        /// Creates a flag from its model and the experiments as they are now.
        private mutating func linkFlag(at index: Int) {
            let model = elements.flags[index].model
            flags[index] = Flag(
                model,
                experiments: model.experimentIDs.compactMap { editedExperiments[$0] ?? former.experiment(id: $0) },
                rollout: former.rollouts.last { $0.id == model.rolloutID }, holdoutVariations: holdoutVariations,
                variableValues: elements.variableValues)
        }
    }
}

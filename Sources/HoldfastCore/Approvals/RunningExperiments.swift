import Bucketing
import Definitions
import JSON
import Storage

extension Project {
    /// Whether an experiment counts as running, so that its changes may need an approval.
    ///
    /// A paused experiment counts, too, if it has ever run, because its users get their variations back when it runs
    /// again. An experiment whose flag is off is paused in the datafile.
    func countsAsRunning(_ experiment: Experiment) -> Bool {
        guard !experiment.annotations.isDraft, !datafile.isDeliveryRule(experiment.id) else { return false }
        if experiment.isRunning { return true }
        let isPaused = experiment.status == ExperimentStatus.paused.rawValue
        return isPaused && definitions.experiments[experiment.key]?.hasNeverRun == false
    }

    /// Returns the keys of the running experiments that a change of definitions affects. An experiment is affected if
    /// the change can alter its users, their variations and values, or what is measured.
    ///
    /// A concluded experiment counts as running until it is archived, because its flag delivers the winner to
    /// everybody.
    ///
    /// - Parameters:
    ///   - compiled: the definitions after the change.
    ///   - segments: the segments that the change defines.
    func runningExperiments(changedBy compiled: CompiledDefinitions, _ segments: [Segment]) -> [Identifier] {
        let running = datafile.experiments.filter { $0.isConcluded || countsAsRunning($0) }
        guard !running.isEmpty else { return [] }
        let comparison = DecisionComparison(from: self, to: compiled, segments)
        return running.filter(comparison.affects).map(\.key)
    }

    /// Whether a change of segments affects a running experiment of this project.
    func changesRunningExperiments(by segments: [Segment]) -> Bool {
        !runningExperiments(changedBy: compiled, segments).isEmpty
    }
}

/// Compares everything on which the decisions and the results of an experiment depend, before and after a change of
/// definitions.
///
/// The comparison is of whole elements of the datafile and of all elements that these refer to. If it were of single
/// members, one could be forgotten.
private struct DecisionComparison {
    private let before: CompiledDefinitions
    private let after: CompiledDefinitions
    /// Whether the change affects every running experiment, because it changes a holdout or the assignment lifetime.
    private let affectsAll: Bool
    /// The keys of the experiments, delivery rules and holdouts whose audience names a segment that changes.
    private let keysUsingSegments: Set<Identifier>
    /// The rollouts before the change, by id. An uploaded datafile may have several with one id.
    private let formerRollouts: [Identifier: [JSONValue]]
    /// The rollouts after the change, by id.
    private let editedRollouts: [Identifier: [JSONValue]]

    init(from project: Project, to compiled: CompiledDefinitions, _ segments: [Segment]) {
        before = project.compiled
        after = compiled
        func byID(_ rollouts: [JSONValue]) -> [Identifier: [JSONValue]] {
            Dictionary(grouping: rollouts) { $0.object?.identifier("id") ?? "" }
        }
        formerRollouts = byID(before.definitions.rollouts)
        editedRollouts = byID(after.definitions.rollouts)
        let former = project.datafile
        let edited = compiled.datafile
        // A new segment counts as changed: an audience that names an undefined segment admits nobody.
        let changedSegments = segments.filter { project.schema.segments[$0.name]?.conditions != $0.conditions }
        let keysUsingSegments = Set(changedSegments.flatMap { former.keys(usingSegment: $0.name) })
        self.keysUsingSegments = keysUsingSegments
        let changesHoldouts = before.definitions.holdoutLists != after.definitions.holdoutLists
        let changesAudiencesOfHoldouts =
            former.holdouts.map { former.resolved($0.audienceConditions) }
            != edited.holdouts.map { edited.resolved($0.audienceConditions) }
        let changesSegmentsOfHoldouts = former.holdouts.contains { keysUsingSegments.contains($0.key) }
        affectsAll =
            changesHoldouts || changesAudiencesOfHoldouts || changesSegmentsOfHoldouts
            || former.assignmentLifetime != edited.assignmentLifetime
    }

    /// Whether the change affects an experiment.
    func affects(_ experiment: Experiment) -> Bool {
        if changesDefinition(of: experiment) { return true }
        // Nobody is enrolled in a concluded experiment any more, so its flag and its metrics may change.
        if experiment.isConcluded { return false }
        let id = experiment.id
        return affectsAll || changesMetrics(of: experiment)
            || before.definitions.owners(of: id).contains { changesDeliveries(of: $0) }
            || before.definitions.owners(of: id).map(\.source) != after.definitions.owners(of: id).map(\.source)
            || before.datafile.groupRanges(ofExperiment: id) != after.datafile.groupRanges(ofExperiment: id)
            || !before.datafile.delivers(experiment, like: after.datafile)
    }

    /// Whether the change alters the experiment itself, its conclusion or its audience.
    private func changesDefinition(of experiment: Experiment) -> Bool {
        let former = before.definitions.experiment(id: experiment.id)
        let edited = after.definitions.experiment(id: experiment.id)
        if former?.source != edited?.source || former?.conclusion != edited?.conclusion { return true }
        if keysUsingSegments.contains(experiment.key) { return true }
        let editedAudience = after.datafile.experiment(id: experiment.id).map(after.datafile.audience(of:))
        return before.datafile.audience(of: experiment) != editedAudience
    }

    /// Whether the change alters the metrics of an experiment or any other of its details.
    private func changesMetrics(of experiment: Experiment) -> Bool {
        let former = before.definitions.experiment(id: experiment.id)
        let edited = after.definitions.experiment(id: experiment.id)
        if former?.details != edited?.details { return true }
        return (former?.details.metrics.all ?? []).contains { key in
            before.definitions.metrics[key] != after.definitions.metrics[key]
        }
    }

    /// Whether the change alters what a flag delivers to the users who are in none of its experiments.
    private func changesDeliveries(of flag: FlagDefinition) -> Bool {
        let former = deliveries(of: flag, in: before.datafile, formerRollouts)
        if former != deliveries(of: flag, in: after.datafile, editedRollouts) { return true }
        let rules = before.datafile.flag(key: flag.key)?.rollout?.rules ?? []
        return rules.contains { keysUsingSegments.contains($0.key) }
    }

    /// Returns the delivery rules of a flag with the conditions of their audiences.
    private func deliveries(
        of flag: FlagDefinition, in datafile: Datafile, _ rollouts: [Identifier: [JSONValue]]
    ) -> [JSONValue] {
        guard let rollout = datafile.flag(key: flag.key)?.rollout else { return [] }
        return (rollouts[rollout.id] ?? []) + rollout.rules.map { datafile.resolved($0.audienceConditions) }
    }
}

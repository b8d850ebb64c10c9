public import Bucketing
import Definitions
import JSON
import Storage

extension Project {
    /// Whether an experiment has users who depend on it. An experiment that has run and is paused, or whose flag is
    /// off, counts as running, because its users come back.
    func countsAsRunning(_ experiment: Experiment) -> Bool {
        guard !experiment.annotations.isDraft, !datafile.isDeliveryRule(experiment.id) else { return false }
        return experiment.isRunning
            || experiment.status == ExperimentStatus.paused.rawValue
                && definitions.experiments[experiment.key]?.hasNeverRun == false
    }

    /// Returns the keys of the running experiments that a change of definitions affects: which users they enroll, what
    /// these get, or what is measured. A concluded experiment counts until it is archived, because everybody gets its
    /// winner.
    ///
    /// - Parameter segments: the segments that the change defines.
    func runningExperiments(changedBy compiled: CompiledDefinitions, _ segments: [Segment]) -> [Identifier] {
        let running = datafile.experiments.filter { $0.isConcluded || countsAsRunning($0) }
        guard !running.isEmpty else { return [] }
        let comparison = DecisionComparison(from: self, to: compiled, segments)
        return running.filter(comparison.differs).map(\.key)
    }

    /// Whether segments change the decisions of a running experiment.
    public func changesRunningExperiments(by segments: [Segment]) -> Bool {
        !runningExperiments(changedBy: compiled, segments).isEmpty
    }
}

/// Compares everything on which the decisions of an experiment depend, before and after a change of definitions.
///
/// It compares whole elements of the datafile and all elements that they refer to, and not single members, so that no
/// member can be forgotten.
private struct DecisionComparison {
    private let before: CompiledDefinitions
    private let after: CompiledDefinitions
    /// Whether something changes on which every running experiment depends: holdouts, or the lifetime of assignments.
    private let changesAll: Bool
    /// The keys of the experiments, deliveries and holdouts whose audience names a segment that changes.
    private let inSegments: Set<Identifier>
    /// The rollouts before and after, by id.
    private let rollouts: (before: [Identifier: [JSONValue]], after: [Identifier: [JSONValue]])

    init(from project: Project, to compiled: CompiledDefinitions, _ segments: [Segment]) {
        before = project.compiled
        after = compiled
        func byID(_ rollouts: [JSONValue]) -> [Identifier: [JSONValue]] {
            Dictionary(grouping: rollouts) { $0.object?.identifier("id") ?? "" }
        }
        rollouts = (byID(before.definitions.rollouts), byID(after.definitions.rollouts))
        let datafile = project.datafile
        // A new segment counts as changed: an audience that names an undefined segment admits nobody.
        let changing = segments.filter { project.schema.segments[$0.name]?.conditions != $0.conditions }
        let inSegments = Set(changing.flatMap { datafile.keys(usingSegment: $0.name) })
        self.inSegments = inSegments
        changesAll =
            before.definitions.holdoutLists != after.definitions.holdoutLists
            || datafile.holdouts.map { datafile.resolved($0.audienceConditions) }
                != compiled.datafile.holdouts.map { compiled.datafile.resolved($0.audienceConditions) }
            || datafile.holdouts.contains { inSegments.contains($0.key) }
            || datafile.assignmentLifetime != compiled.datafile.assignmentLifetime
    }

    /// Whether the change affects an experiment.
    func differs(_ experiment: Experiment) -> Bool {
        let former = before.definitions
        let edited = after.definitions
        let id = experiment.id
        let was = former.experiment(id: id)
        let now = edited.experiment(id: id)
        if inSegments.contains(experiment.key) || was?.source != now?.source || was?.conclusion != now?.conclusion
            || before.datafile.audience(of: experiment)
                != after.datafile.experiment(id: id).map(after.datafile.audience(of:))
        {
            return true
        }
        // Nobody is enrolled in a concluded experiment any more, so its flag and its metrics may change.
        if experiment.isConcluded { return false }
        let owners = former.owners(of: id)
        return changesAll || was?.details != now?.details
            || owners.map(\.source) != edited.owners(of: id).map(\.source)
            || owners.contains {
                deliveries(of: $0, in: before.datafile, rollouts.before)
                    != deliveries(of: $0, in: after.datafile, rollouts.after)
            }
            || owners.contains { !inSegments.isDisjoint(with: deliveryKeys(of: $0)) }
            || before.datafile.groupRanges(of: id) != after.datafile.groupRanges(of: id)
            || (was?.details.metrics.all ?? []).contains { former.metrics[$0] != edited.metrics[$0] }
            || !before.datafile.delivers(experiment, like: after.datafile)
    }

    /// Returns what users of a flag get who are in none of its experiments: the delivery rules with their audiences.
    private func deliveries(
        of flag: FlagDefinition, in datafile: Datafile, _ rollouts: [Identifier: [JSONValue]]
    ) -> [JSONValue] {
        guard let rollout = datafile.flag(key: flag.key)?.rollout else { return [] }
        return (rollouts[rollout.id] ?? []) + rollout.rules.map { datafile.resolved($0.audienceConditions) }
    }

    /// Returns the keys of a flag's delivery rules.
    private func deliveryKeys(of flag: FlagDefinition) -> [Identifier] {
        before.datafile.flag(key: flag.key)?.rollout?.rules.map(\.key) ?? []
    }
}

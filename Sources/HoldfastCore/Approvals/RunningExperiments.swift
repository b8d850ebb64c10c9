import Bucketing
import Definitions
import JSON
import Storage

extension Project {
    /// Whether users depend on an experiment. One that was paused, or whose flag was turned off, counts as running, because
    /// its users come back.
    func countsAsRunning(_ experiment: Experiment) -> Bool {
        guard !experiment.annotations.isDraft, !datafile.isDeliveryRule(experiment.id) else { return false }
        return experiment.isRunning
            || experiment.status == ExperimentStatus.paused.rawValue
                && definitions.experiments[experiment.key]?.hasNeverRun == false
    }

    /// Returns the keys of the running experiments that a change of definitions changes: themselves, whom they take, what
    /// these get, or what is measured. A concluded one counts, too, until it is archived: everybody gets its winner.
    ///
    /// - Parameter segments: those to define.
    func runningExperiments(changedBy compiled: CompiledDefinitions, _ segments: [Segment]) -> [Identifier] {
        let running = datafile.experiments.filter { $0.isConcluded || countsAsRunning($0) }
        guard !running.isEmpty else { return [] }
        let comparison = DecisionComparison(from: self, to: compiled, segments)
        return running.filter(comparison.differs).map(\.key)
    }
}

/// Compares what decisions depend on before and after a change of definitions: elements of the datafile as a whole, and all
/// that they refer to, so that no member can be forgotten.
private struct DecisionComparison {
    private let before: CompiledDefinitions
    private let after: CompiledDefinitions
    /// Whether something changes on which every running experiment depends.
    private let changesAll: Bool
    /// The keys of the experiments, deliveries and holdouts whose audience names a segment that changes.
    private let inSegments: Set<Identifier>
    /// The rollouts before and after, by id.
    private let rollouts: (before: [Identifier: [JSONValue]], after: [Identifier: [JSONValue]])

    init(from project: Project, to compiled: CompiledDefinitions, _ segments: [Segment]) {
        (before, after) = (project.compiled, compiled)
        func byID(_ rollouts: [JSONValue]) -> [Identifier: [JSONValue]] {
            Dictionary(grouping: rollouts) { $0.object?.identifier("id") ?? "" }
        }
        rollouts = (byID(before.definitions.rollouts), byID(after.definitions.rollouts))
        let datafile = project.datafile
        // An audience that names an undefined segment takes nobody; defined, it takes users.
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

    func differs(_ experiment: Experiment) -> Bool {
        let (former, edited) = (before.definitions, after.definitions)
        let id = experiment.id
        let (was, now) = (former.experiment(id: id), edited.experiment(id: id))
        if inSegments.contains(experiment.key) || was?.source != now?.source || was?.conclusion != now?.conclusion
            || before.datafile.audience(of: experiment)
                != after.datafile.experiment(id: id).map(after.datafile.audience(of:))
        {
            return true
        }
        // Its flag may change, as that of an archived one.
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

    /// What the users of a flag get whom no experiment takes: the rules as the datafile has them, and their audiences.
    private func deliveries(
        of flag: FlagDefinition, in datafile: Datafile, _ rollouts: [Identifier: [JSONValue]]
    ) -> [JSONValue] {
        guard let rollout = datafile.flag(key: flag.key)?.rollout else { return [] }
        return (rollouts[rollout.id] ?? []) + rollout.rules.map { datafile.resolved($0.audienceConditions) }
    }

    private func deliveryKeys(of flag: FlagDefinition) -> [Identifier] {
        before.datafile.flag(key: flag.key)?.rollout?.rules.map(\.key) ?? []
    }
}

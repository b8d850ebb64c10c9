import Bucketing

extension Datafile {
    /// The experiments without the delivery rules of flags, as the Agent counts them, too.
    var experimentsBesideRules: [Experiment] {
        let rules = Set(rollouts.flatMap(\.rules).map(\.id))
        return experiments.filter { !rules.contains($0.id) }
    }

    /// The experiment that a caller names: by its key, or else by its id.
    func experiment(keyOrID name: Identifier) -> Experiment? {
        experiment(key: name) ?? experiment(id: name)
    }

    func agentExperiment(key: Identifier) -> Experiment? {
        guard let experiment = experiment(key: key) else { return nil }
        let isDeliveryRule = rollouts.contains { $0.rules.contains { $0.id == experiment.id } }
        return isDeliveryRule ? nil : experiment
    }
}

import Bucketing

extension Datafile {
    /// The experiments without the delivery rules of flags, as the Agent counts them, too.
    var experimentsBesideRules: [Experiment] {
        let rules = Set(rollouts.flatMap(\.rules).map(\.id))
        return experiments.filter { !rules.contains($0.id) }
    }

    func agentExperiment(key: Identifier) -> Experiment? {
        guard let experiment = experiment(key: key) else { return nil }
        let isDeliveryRule = rollouts.contains { $0.rules.contains { $0.id == experiment.id } }
        return isDeliveryRule ? nil : experiment
    }
}

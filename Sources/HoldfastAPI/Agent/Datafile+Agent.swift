import Bucketing

extension Datafile {
    /// The experiments as the Agent counts them: without the delivery rules.
    var agentExperiments: [Experiment] {
        let rules = Set(rollouts.flatMap(\.rules).map(\.id))
        return experiments.filter { !rules.contains($0.id) }
    }

    func agentExperiment(key: Identifier) -> Experiment? {
        guard let experiment = experiment(key: key) else { return nil }
        let isDeliveryRule = rollouts.contains { $0.rules.contains { $0.id == experiment.id } }
        return isDeliveryRule ? nil : experiment
    }
}

extension DecisionRun {
    /// Returns the variation at the user's bucket value in an experiment or a delivery rule.
    ///
    /// - Returns: `nil` if the traffic leaves the user out.
    func bucket(into experiment: Experiment) -> Variation? {
        if user.isUnidentified {
            // A user without an id has no bucket value. Such a user gets a variation only if all bucket values belong
            // to it.
            guard experiment.gate == nil, experiment.isBucketed else { return nil }
            return experiment.trafficAllocation.entityOfAll.flatMap(experiment.variation(id:))
        }
        guard let gate = experiment.gate else {
            guard experiment.isBucketed, let id = bucketedID(in: experiment, experiment.trafficAllocation) else {
                return nil
            }
            return experiment.variation(id: id)
        }
        // While enrollment is closed, the datafile admits nobody, but an SDK may have an older one.
        guard !experiment.annotations.isClosed, isAdmitted || bucketedID(in: experiment, gate) != nil else {
            reasons.add("User \(user.id) not in CMAB experiment \(experiment.key) due to traffic allocation")
            return nil
        }
        return predictedVariation(of: experiment)
    }

    /// Returns the variation of a user whom a contextual bandit admits, by weights that are the same for all users.
    ///
    /// The hash differs from the one that decides who is admitted: with the same hash, all admitted users would have
    /// low bucket values, and would not be split by the weights. The user id is hashed and not the bucketing id,
    /// because SDKs that request a prediction send no bucketing id.
    private func predictedVariation(of experiment: Experiment) -> Variation? {
        let parentID = Identifier("\(experiment.id)/prediction")
        let allocation = experiment.trafficAllocation
        let result = Bucketer.bucket(bucketingID: user.id, parentID: parentID, trafficAllocation: allocation)
        let variation = result.entityID.flatMap(experiment.variation(id:))
        record(.prediction(step(result, of: user.id, below: parentID, allocation), variation))
        if let variation { reasons.add("User bucketed into variation \(variation.key) by CMAB service") }
        return variation
    }

    /// Returns the id at the user's bucket value in the experiment's traffic. If the experiment is in an exclusion
    /// group, the bucket value in the group's traffic must have chosen the experiment first.
    ///
    /// - Parameter allocation: the experiment's traffic, or the gate of a contextual bandit.
    private func bucketedID(in experiment: Experiment, _ allocation: TrafficAllocation) -> Identifier? {
        if let group = experiment.exclusionGroup {
            let result = bucket(below: group.id, group.trafficAllocation)
            let chosen = result.entityID
            record(
                .group(group, step(result, below: group.id, group.trafficAllocation), isChosen: chosen == experiment.id)
            )
            guard let chosen else {
                reasons.addDetail("User \"\(user.id)\" is in no experiment.")
                return nil
            }
            guard chosen == experiment.id else {
                reasons.addDetail(
                    "User \"\(user.id)\" is not in experiment \"\(experiment.key)\" of group \(group.id)."
                )
                return nil
            }
            reasons.addDetail("User \"\(user.id)\" is in experiment \(experiment.key) of group \(group.id).")
        }
        let result = bucket(below: experiment.id, allocation)
        record(
            .bucketing(
                step(result, below: experiment.id, allocation),
                result.entityID.flatMap(experiment.variation(id:))))
        return result.entityID
    }

    /// Buckets the user.
    ///
    /// - Parameter parentID: the id of the experiment, group or holdout; see ``Bucketer``.
    func bucket(below parentID: Identifier, _ allocation: TrafficAllocation) -> BucketingResult {
        Bucketer.bucket(bucketingID: bucketingID, parentID: parentID, trafficAllocation: allocation)
    }
}

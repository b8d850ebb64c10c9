extension DecisionRun {
    /// The variation that keeps the user out, if the holdout does.
    ///
    /// - Parameter rule: the rule that a local holdout is asked for.
    func variation(of holdout: Holdout, rule: Experiment?) -> Variation? {
        let kind = rule == nil ? "holdout" : "local holdout"
        let key = holdout.key
        let admits = admits(holdout.audience, to: "holdout \"\(holdout.key)\"")
        reasons.add("Audiences for holdout \(key) collectively evaluated to \(admits).")
        guard admits else {
            reasons.add("User \(user.id) does not meet conditions for \(kind) \(key).")
            return nil
        }
        reasons.add("User \(user.id) meets conditions for \(kind) \(key).")
        noteInvalidBucketingID(for: "\(kind) \"\(key)\"")
        let id = holdout.isBucketed ? bucket(below: holdout.id, holdout.trafficAllocation) : nil
        let variation = id.flatMap { holdout.variations.variation(id: $0) }
        switch (variation, rule) {
        case (let variation?, let rule?):
            reasons.add("User \(user.id) is in variation \(variation.key) of \(kind) \(key) for rule \(rule.id).")
        case (let variation?, nil):
            reasons.add("User \(user.id) is in variation \(variation.key) of \(kind) \(key).")
        case (nil, let rule?):
            reasons.add("User \(user.id) is not bucketed into \(kind) \(key) for rule \(rule.id).")
        case (nil, nil):
            reasons.add("User \(user.id) is in no holdout variation.")
        }
        return variation
    }

    func localHoldout(ofRule rule: Experiment) -> (holdout: Holdout, variation: Variation)? {
        for holdout in datafile.holdouts(ofRule: rule.id) {
            if let variation = variation(of: holdout, rule: rule) { return (holdout, variation) }
        }
        return nil
    }
}

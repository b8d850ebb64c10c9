extension DecisionRun {
    /// Decides an experiment independently of flags and holdouts.
    func decision(on experiment: Experiment) -> ExperimentDecision {
        let outcome = evaluate(experiment)
        return ExperimentDecision(
            experiment: experiment, variation: outcome.variation, source: outcome.source, holdout: nil,
            reasons: reasons.texts, newAssignment: newAssignments.last,
            hasStaleAssignment: hasStaleAssignment
        )
    }

    /// Decides an experiment independently of flags, unless a holdout keeps the user out.
    func decisionUnlessHeldOut(on experiment: Experiment) -> ExperimentDecision {
        guard let holdout = holdout(of: experiment) else { return decision(on: experiment) }
        return ExperimentDecision(
            experiment: experiment, variation: nil, source: .holdout, holdout: holdout,
            reasons: reasons.texts, newAssignment: nil, hasStaleAssignment: hasStaleAssignment
        )
    }

    /// Returns the holdout that keeps the user out of an experiment: a global one, or else a local one.
    private func holdout(of experiment: Experiment) -> Holdout? {
        // As for a flag, only the first global holdout that the user is in counts.
        for holdout in datafile.globalHoldouts where variation(of: holdout, rule: nil) != nil {
            if !(holdout.excludesTargetedDeliveries && experiment.isTargetedDelivery) { return holdout }
            record(.holdoutExemption(holdout))
            break
        }
        return localHoldout(ofRule: experiment)?.holdout
    }

    /// Decides an experiment, like `get_variation` of Optimizely's Python SDK. The first of these that applies decides:
    ///
    /// 1. a variation forced on the user for a test,
    /// 2. an override, which an admin has set,
    /// 3. the whitelist of the datafile,
    /// 4. the stored assignment; if it is an override whose variation no longer exists, the assignment from before the
    ///    override,
    /// 5. the audience, which excludes users,
    /// 6. bucketing, whose result becomes the stored assignment, unless the profile is full.
    ///
    /// ``heldVariation(of:)`` is the steps 1 to 4.
    ///
    /// Forced decisions of the request and holdouts take precedence over all of these. The caller evaluates them.
    func evaluate(_ experiment: Experiment) -> Outcome {
        record(.status(experiment.status, isRunning: experiment.isRunning))
        guard experiment.isRunning else {
            if let winner = experiment.winner, audienceAdmits(to: experiment) {
                reasons.add(
                    "Experiment \"\(experiment.key)\" is concluded: everybody gets variation \"\(winner.key)\".")
                return Outcome(variation: winner, source: .concluded)
            }
            reasons.add("Experiment \"\(experiment.key)\" is not running.")
            return .none
        }
        guard !user.isUnidentified else {
            reasons.add("Experiment \"\(experiment.key)\" needs the id of the user.")
            return .none
        }
        let storesNewVariation: Bool
        let staleVariationID: Identifier?
        switch heldVariation(of: experiment) {
        case .held(let outcome):
            if outcome.isFromAnonymousProfile, let variation = outcome.variation {
                keep(
                    NewAssignment(experimentID: experiment.id, variationID: variation.id, isFromAnonymousProfile: true))
            }
            return outcome
        case .none(let stores, let staleID): (storesNewVariation, staleVariationID) = (stores, staleID)
        }
        // `isAdmitted`: an SDK has found that the audience and the traffic admit the user.
        let isInAudience = isAdmitted || audienceAdmits(to: experiment)
        record(.audience(step(experiment.audience, admits: isInAudience)))
        guard isInAudience else {
            reasons.add("User \"\(user.id)\" does not meet conditions to be in experiment \"\(experiment.key)\".")
            return .none
        }
        explainInvalidBucketingID(for: "experiment \"\(experiment.key)\"")
        if experiment.annotations.isClosed { record(.closedEnrollment) }
        guard let variation = bucket(into: experiment) else {
            if experiment.annotations.isClosed {
                reasons.addDetail("Enrollment in experiment \"\(experiment.key)\" is closed.")
            }
            reasons.addDetail("User \"\(user.id)\" is in no variation.")
            return .none
        }
        reasons.addDetail("User \"\(user.id)\" is in variation \"\(variation.key)\" of experiment \(experiment.key).")
        if storesNewVariation {
            // A stale assignment is replaced, so it needs no room.
            guard staleVariationID != nil || hasRoom(for: experiment) else {
                record(.fullProfile)
                reasons.add(
                    "The profile of user \"\(user.id)\" is full: it has no room for experiment \"\(experiment.key)\".")
                return .none
            }
            keep(
                NewAssignment(
                    experimentID: experiment.id, variationID: variation.id, staleVariationID: staleVariationID))
        }
        return Outcome(variation: variation, source: .bucketed)
    }

    /// The variation that a user has in an experiment, regardless of audience and bucketing.
    enum HeldVariation {
        case held(Outcome)
        /// The user has no variation yet, and may be bucketed.
        ///
        /// - Parameters:
        ///   - storesNewVariation: whether the variation that the user is bucketed into should be stored.
        ///   - staleVariationID: the id of the stored variation if that no longer exists.
        case none(storesNewVariation: Bool, staleVariationID: Identifier?)
    }

    /// Returns the variation that the user has regardless of audience and bucketing. The order of precedence is defined
    /// here only.
    func heldVariation(of experiment: Experiment) -> HeldVariation {
        // 1. A variation forced for a test. It hides the assignment of the profile.
        // 2. An override, which is an assignment of the profile that an admin has set.
        let forced = forcedAssignment(in: experiment)
        let assignment = forced ?? assignment(in: experiment)
        let isOverridden = assignment?.isOverride ?? false
        let overriding = isOverridden ? overridingVariation(assignment, of: experiment) : nil
        record(.forcedVariation(.init(name: forced?.variationID, variation: forced == nil ? nil : overriding)))
        if forced == nil {
            record(.override(.init(name: isOverridden ? assignment?.variationID : nil, variation: overriding)))
        }
        if let variation = overriding {
            return .held(Outcome(variation: variation, source: .override))
        }
        // 3. The whitelist of the datafile.
        let whitelisted = whitelistedVariation(of: experiment)
        record(.whitelist(.init(name: experiment.forcedVariations[user.id], variation: whitelisted)))
        if let variation = whitelisted {
            return .held(Outcome(variation: variation, source: .whitelist))
        }
        // 4. The stored assignment. The profile keeps the assignment from before an override beneath it. If the
        // variation of the override no longer exists, that assignment counts. The override is then kept, and nothing
        // is stored in its place, so that an admin can resolve it.
        guard usesProfile, forced == nil else { return .none(storesNewVariation: false, staleVariationID: nil) }
        let kept = isOverridden ? assignmentBeneathOverride(in: experiment) : assignment
        let stored = kept.flatMap { storedVariation($0, of: experiment) }
        record(.storedAssignment(.init(name: kept?.variationID, variation: stored)))
        if let kept, let variation = stored {
            return .held(
                Outcome(variation: variation, source: .stored, isFromAnonymousProfile: kept.isFromAnonymousProfile))
        }
        return .none(
            storesNewVariation: !isOverridden, staleVariationID: isOverridden ? nil : kept?.variationID)
    }

    /// Returns the variation of an override.
    ///
    /// - Returns: `nil` if the variation no longer exists.
    private func overridingVariation(_ assignment: StoredAssignment?, of experiment: Experiment) -> Variation? {
        guard let id = assignment?.variationID, let variation = experiment.variationsOfKey.variation(id: id) else {
            noteStaleAssignment()
            return nil
        }
        reasons.add("Override variation \(variation.key) found for user \(user.id)")
        return variation
    }

    /// Returns the variation that the datafile forces on the user.
    ///
    /// - Returns: `nil` if the user is not whitelisted, or the variation does not exist.
    private func whitelistedVariation(of experiment: Experiment) -> Variation? {
        guard !experiment.forcedVariations.isEmpty, let key = experiment.forcedVariations[user.id] else { return nil }
        guard let variation = experiment.variationsOfKey.variation(key: key) else {
            reasons.add("User \"\(user.id)\" is whitelisted into variation \"\(key)\", which is not in the datafile.")
            return nil
        }
        reasons.add(
            "User \"\(user.id)\" is whitelisted into variation \"\(key)\" of experiment \"\(experiment.key)\"."
        )
        return variation
    }

    /// Returns the variation of a stored assignment.
    ///
    /// - Returns: `nil` if the variation no longer exists.
    private func storedVariation(_ assignment: StoredAssignment, of experiment: Experiment) -> Variation? {
        guard let variation = experiment.variationsOfKey.variation(id: assignment.variationID) else {
            noteStaleAssignment()
            reasons.add(
                """
                User "\(user.id)" was previously bucketed into variation with ID "\(assignment.variationID)" for \
                experiment "\(experiment.key)", but no matching variation was found.
                """
            )
            return nil
        }
        reasons.add(
            """
            User "\(user.id)" was previously bucketed into variation "\(variation.key)" of \
            experiment "\(experiment.key)".
            """
        )
        return variation
    }

    /// Whether the audience of an experiment admits the user.
    func audienceAdmits(to experiment: Experiment) -> Bool {
        let admits = admits(experiment.audience, to: "experiment \"\(experiment.key)\"")
        reasons.add("Audiences for experiment \(experiment.key) collectively evaluated to \(admits).")
        return admits
    }

    /// Whether an audience admits the user. `nil` admits everyone, and an unknown result admits nobody.
    ///
    /// - Parameter subject: what the audience belongs to, for the reasons: `experiment "e"`.
    func admits(_ audience: Condition?, to subject: @autoclosure () -> String) -> Bool {
        guard let audience else { return true }
        if let answer = audience.evaluate(for: user, &reasons) { return answer }
        if detail == .full { explainUnknown(audience, of: subject()) }
        return false
    }

    /// Whether an audience certainly does not admit the user. False if its result is unknown.
    func excludes(_ audience: Condition?) -> Bool {
        audience?.evaluate(for: user, &reasons) == false
    }
}

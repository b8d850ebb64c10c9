import Bucketing
import JSON

extension ExperimentPreview {
    /// An effect of a change that may disturb the results or the users.
    public enum Warning: String, Sendable, CaseIterable {
        case weightsChangedMidflight = "weights_changed_midflight"
        case variationRemoved = "variation_removed"
        case variationAdded = "variation_added"
        case audienceNarrowed = "audience_narrowed"
        case audienceWidened = "audience_widened"
        case audienceChanged = "audience_changed"
        case trafficLowered = "traffic_lowered"
        case trafficRaised = "traffic_raised"
        case groupChanged = "group_changed"
        case enrollmentClosed = "enrollment_closed"
        case enrollmentOpened = "enrollment_opened"
        case paused
        case archived
        case resumed

        /// The warning as a sentence for people.
        public var message: String {
            switch self {
            case .weightsChangedMidflight:
                "the ratio of the variations changes while users are enrolled: results count users by the allocation under "
                    + "which they were assigned, but averages over both periods are biased if their users differ"
            case .variationRemoved:
                "users of the variation get another one at their next decision, and results leave them out until it is "
                    + "added again"
            case .variationAdded:
                "only new users get the new variation, so it is compared with users of an earlier period"
            case .audienceNarrowed:
                "from now on the audience restricts who is enrolled; enrolled users stay, so results mix both populations"
            case .audienceWidened: "from now on everybody is admitted, so results mix both populations"
            case .audienceChanged:
                "from now on other users are admitted; enrolled users stay, so results mix both populations"
            case .trafficLowered: "fewer new users are enrolled; enrolled users stay"
            case .trafficRaised:
                "more users are enrolled, including earlier visitors who were not; if you also change weights, these are "
                    + "split in another ratio than new users"
            case .groupChanged:
                "the experiment becomes exclusive with other experiments than before, and gets other users"
            case .enrollmentClosed: "nobody new is enrolled; enrolled users stay and are still measured"
            case .enrollmentOpened:
                "users are enrolled again, including those who visited while enrollment was closed, so results mix both periods"
            case .paused: "nobody gets a variation until the experiment runs again; assignments are kept"
            case .archived: "nobody gets a variation any more; assignments and results are kept"
            case .resumed: "the experiment runs again; enrolled users have their former variation"
            }
        }
    }

    /// Returns the warnings that apply to the change.
    ///
    /// - Parameter hasUsers: whether any user has an assignment or was exposed. Without users some changes disturb
    ///   nothing.
    public func warnings(hasUsers: Bool) -> [Warning] {
        guard let former else { return [] }
        var warnings = statusWarnings(former)
        let before = Set(former.variations.map(\.id))
        let after = Set(edited.variations.map(\.id))
        if hasUsers, Self.changesWeights(from: former, to: edited) {
            warnings.append(.weightsChangedMidflight)
        }
        if !before.isSubset(of: after) { warnings.append(.variationRemoved) }
        if hasUsers, !after.isSubset(of: before) { warnings.append(.variationAdded) }
        if let audienceWarning { warnings.append(audienceWarning) }
        if edited.traffic < former.traffic { warnings.append(.trafficLowered) }
        if hasUsers, edited.traffic > former.traffic { warnings.append(.trafficRaised) }
        if Self.groupID(former) != Self.groupID(edited) { warnings.append(.groupChanged) }
        if former.enrollment != edited.enrollment {
            warnings.append(edited.enrollment == .closed ? .enrollmentClosed : .enrollmentOpened)
        }
        return warnings
    }

    /// Returns how an audience changes; `nil` if it does not.
    ///
    /// - Parameters:
    ///   - before: the conditions before the change; null admits everybody.
    ///   - after: the conditions after it.
    static func audienceWarning(before: JSONValue, after: JSONValue) -> Warning? {
        switch (before.isNull, after.isNull) {
        case (true, true): return nil
        case (true, false): return .audienceNarrowed
        case (false, true): return .audienceWidened
        case (false, false): return before == after ? nil : .audienceChanged
        }
    }

    private func statusWarnings(_ former: Experiment) -> [Warning] {
        if former.status == edited.status { return [] }
        if edited.isRunning { return [.resumed] }
        if edited.status == ExperimentStatus.archived.rawValue { return [.archived] }
        return former.isRunning ? [.paused] : []
    }

    /// Whether the ratio of the common variations differs. Compares the given weights if all variations have one, and
    /// otherwise the allocations up to their rounding.
    private static func changesWeights(from former: Experiment, to edited: Experiment) -> Bool {
        let common = edited.variations.map(\.id).filter { former.variation(id: $0) != nil }
        func given(_ experiment: Experiment) -> [Double]? {
            let weights = common.compactMap { experiment.variation(id: $0)?.weight }
            return weights.count == common.count ? weights : nil
        }
        if let before = given(former), let after = given(edited) {
            let sumBefore = before.reduce(0, +)
            let sumAfter = after.reduce(0, +)
            // Compares each weight's part of its sum, without a division. The tolerance is for rounding errors.
            return zip(before, after).contains { weightBefore, weightAfter in
                abs(weightBefore * sumAfter - weightAfter * sumBefore) > 1e-9 * sumBefore * sumAfter
            }
        }
        let before = RoundedShares(former, common)
        let after = RoundedShares(edited, common)
        guard before.total > 0, after.total > 0 else { return false }
        return common.indices.contains { index in
            let shareBefore = before.share(index)
            let shareAfter = after.share(index)
            // A smaller difference may come from rounding alone.
            return abs(shareBefore.value - shareAfter.value) >= shareBefore.error + shareAfter.error
        }
    }

    /// The numbers of bucket values that some variations of an experiment have, with bounds of their rounding errors.
    ///
    /// Rounding changes the number of each variation by less than one. The sum over all variations is exact, so the sum
    /// over some of them is wrong by less than the number of those, and by less than the number of the others.
    private struct RoundedShares {
        private let counts: [Int]
        let total: Int
        /// The bound of the error of ``total``: the number of the variations or of the others, whichever is less.
        private let totalError: Int

        init(_ experiment: Experiment, _ variations: [Identifier]) {
            let shares = experiment.shares
            counts = variations.map { shares[$0] ?? 0 }
            total = counts.reduce(0, +)
            totalError = min(variations.count, experiment.variations.count - variations.count)
        }

        /// Returns the share that a variation has of the total, and the bound of its rounding error.
        func share(_ index: Int) -> (value: Double, error: Double) {
            let value = Double(counts[index]) / Double(total)
            return (value, (1 + value * Double(totalError)) / Double(max(1, total - totalError)))
        }
    }
}

public import Bucketing
import JSON

/// What a change of an experiment would do to users.
public struct ExperimentPreview: Sendable {
    /// A share of new users who would get another variation than now.
    public struct Move: Sendable, Equatable {
        /// The key of the variation now and after the change; `nil` for those who are not enrolled.
        public var from: Identifier?
        public var to: Identifier?
        /// A percentage of all users whom the audience admits.
        public var share: Double
    }

    /// `nil` if the change creates the experiment.
    public let former: Experiment?
    public let edited: Experiment
    package let formerDatafile: Datafile?
    package let editedDatafile: Datafile
    /// How the audience changes; `nil` if it does not, or the experiment is new.
    private let audienceWarning: Warning?
    /// The new users who would get another variation, in the order of the variations.
    public let moves: [Move]

    /// - Returns: `nil` if `edited` does not have the experiment.
    public init?(_ key: Identifier, from former: Datafile?, to edited: Datafile) {
        guard let experiment = edited.experiment(key: key) else { return nil }
        self.edited = experiment
        self.former = former?.experiment(key: key)
        formerDatafile = former
        editedDatafile = edited
        audienceWarning =
            if let former, let before = self.former {
                Self.audienceWarning(before: former.audience(of: before), after: edited.audience(of: experiment))
            } else {
                nil
            }
        moves = Self.moves(from: self.former, to: experiment)
    }

    public var changesAudience: Bool { audienceWarning != nil }

    /// The percentage of new users who would get another variation, or none, or one instead of none.
    public var changedShare: Double {
        // Shares are multiples of a hundred-millionth, so that their sum has no rounding error to show.
        (moves.reduce(0) { $0 + $1.share } * 1e6).rounded() / 1e6
    }

    // MARK: New users

    private struct Pair: Hashable {
        var from: Identifier?
        var to: Identifier?
    }

    /// Counts over the whole bucket space. Users of a group are bucketed twice, independently: into an experiment of the
    /// group, and into a variation.
    private static func moves(from former: Experiment?, to edited: Experiment) -> [Move] {
        let inGroup = shares(membership(former), membership(edited), areSame: groupID(former) == groupID(edited))
        let ofVariations = shares(owners(former), owners(edited), areSame: former?.id ?? edited.id == edited.id)
        var moves: [Pair: Double] = [:]
        for (member, memberShare) in inGroup {
            for (owner, share) in ofVariations {
                let pair = Pair(
                    from: member.from == nil ? nil : owner.from, to: member.to == nil ? nil : owner.to)
                if pair.from != pair.to { moves[pair, default: 0] += memberShare * share * 100 }
            }
        }
        func rank(_ id: Identifier?) -> Int {
            let ids = edited.variations.map(\.id) + (former?.variations.map(\.id) ?? [])
            return id.flatMap { ids.firstIndex(of: $0) } ?? ids.count
        }
        func key(_ id: Identifier?) -> Identifier? {
            id.map { edited.variation(id: $0)?.key ?? former?.variation(id: $0)?.key ?? $0 }
        }
        return moves.sorted { (rank($0.key.from), rank($0.key.to)) < (rank($1.key.from), rank($1.key.to)) }.map {
            Move(from: key($0.key.from), to: key($0.key.to), share: ($0.value * 1e6).rounded() / 1e6)
        }
    }

    /// Returns the share of users for each combination of owners now and after the change.
    ///
    /// - Parameter areSame: whether users have the same bucket values in both.
    private static func shares(
        _ former: [Identifier?], _ edited: [Identifier?], areSame: Bool
    ) -> [Pair: Double] {
        var shares: [Pair: Double] = [:]
        let unit = 1 / Double(Bucketer.bucketCount)
        if areSame {
            for (from, to) in zip(former, edited) { shares[Pair(from: from, to: to), default: 0] += unit }
        } else {
            for (from, count) in Dictionary(grouping: former, by: { $0 }).mapValues(\.count) {
                for (to, other) in Dictionary(grouping: edited, by: { $0 }).mapValues(\.count) {
                    shares[Pair(from: from, to: to)] = Double(count) * unit * Double(other) * unit
                }
            }
        }
        return shares
    }

    /// The variation that new users of each bucket value get.
    private static func owners(_ experiment: Experiment?) -> [Identifier?] {
        (0..<Bucketer.bucketCount).map { value in
            guard let experiment, experiment.isRunning, let id = experiment.trafficAllocation.entity(at: value) else {
                return nil
            }
            return experiment.variation(id: id)?.id
        }
    }

    /// For each bucket value of the group, an id if its users may be enrolled.
    private static func membership(_ experiment: Experiment?) -> [Identifier?] {
        (0..<Bucketer.bucketCount).map { value in
            guard let experiment else { return nil }
            guard let group = experiment.exclusionGroup else { return experiment.id }
            return group.trafficAllocation.entity(at: value) == experiment.id ? experiment.id : nil
        }
    }

    private static func groupID(_ experiment: Experiment?) -> Identifier? {
        experiment?.exclusionGroup?.id
    }
}

// MARK: - Warnings

extension ExperimentPreview {
    /// What may disturb the results or the users.
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

        /// For people.
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

    /// The warnings that apply.
    ///
    /// - Parameter hasUsers: whether anybody has an assignment or was exposed.
    public func warnings(hasUsers: Bool) -> [Warning] {
        guard let former else { return [] }
        var warnings = statusWarnings(former)
        let (before, after) = (Set(former.variations.map(\.id)), Set(edited.variations.map(\.id)))
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

    /// - Parameters:
    ///   - before: the conditions of the audience now.
    ///   - after: those after the change; null admits everybody.
    private static func audienceWarning(before: JSONValue, after: JSONValue) -> Warning? {
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

    /// Whether the ratio of the variations that both have differs. The given weights are compared if both have them, else
    /// the allocations, up to their rounding.
    private static func changesWeights(from former: Experiment, to edited: Experiment) -> Bool {
        let common = edited.variations.map(\.id).filter { former.variation(id: $0) != nil }
        func given(_ experiment: Experiment) -> [Double]? {
            let weights = common.compactMap { experiment.variation(id: $0)?.weight }
            return weights.count == common.count ? weights : nil
        }
        if let before = given(former), let after = given(edited) {
            let (sum, sumAfter) = (before.reduce(0, +), after.reduce(0, +))
            return zip(before, after).contains { abs($0 * sumAfter - $1 * sum) > 1e-9 * sum * sumAfter }
        }
        let (before, after) = (RoundedShares(former, common), RoundedShares(edited, common))
        guard before.total > 0, after.total > 0 else { return false }
        return common.indices.contains { index in
            let (left, right) = (before.share(index), after.share(index))
            return abs(left.value - right.value) >= left.error + right.error
        }
    }

    /// The bucket values of some variations.
    ///
    /// Rounding changes each variation's number, and so also the number of all others together, by less than one for each
    /// variation. The sum over all variations is exact.
    private struct RoundedShares {
        private let counts: [Int]
        let total: Int
        /// The number of variations whose rounding changes the total.
        private let others: Int

        init(_ experiment: Experiment, _ variations: [Identifier]) {
            let shares = experiment.shares
            counts = variations.map { shares[$0] ?? 0 }
            total = counts.reduce(0, +)
            others = min(variations.count, experiment.variations.count - variations.count)
        }

        /// A share of the total, and by how much rounding may have changed it.
        func share(_ index: Int) -> (value: Double, error: Double) {
            let value = Double(counts[index]) / Double(total)
            return (value, (1 + value * Double(others)) / Double(max(1, total - others)))
        }
    }
}

public import Bucketing
import JSON

/// The effects that a change of an experiment would have on users, computed from the datafiles before and after the
/// change.
///
/// The preview knows which shares of new users would get another variation (``moves``), and what may disturb the
/// results (``warnings(hasUsers:)``). It does not look at stored users.
public struct ExperimentPreview: Sendable {
    /// A share of new users who would get another variation than now.
    public struct Move: Sendable, Equatable {
        /// The key of the variation now; `nil` if the users are not enrolled.
        public var from: Identifier?
        /// The key of the variation after the change; `nil` if the users would not be enrolled.
        public var to: Identifier?
        /// The percentage of the users whom the audience admits.
        public var share: Double
    }

    /// `nil` if the change creates the experiment.
    public let former: Experiment?
    public let edited: Experiment
    package let formerDatafile: Datafile?
    package let editedDatafile: Datafile
    /// How the audience changes; `nil` if it does not, or the experiment is new.
    let audienceWarning: Warning?
    /// The new users who would get another variation, in the order of the variations.
    public let moves: [Move]

    /// Compares an experiment in two datafiles.
    ///
    /// - Parameter former: the datafile before the change; `nil` for a new project.
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
    public var changedShare: Double { Self.rounded(moves.reduce(0) { $0 + $1.share }) }

    /// Removes the rounding errors of a sum of shares. A share is a multiple of a hundred-millionth of the users,
    /// because a group and an experiment have 10,000 bucket values each; as a percentage it has six decimals.
    private static func rounded(_ percentage: Double) -> Double { (percentage * 1e6).rounded() / 1e6 }

    // MARK: New users

    /// The variation, or the experiment of a group, that a bucket value belongs to before and after the change; `nil`
    /// for none.
    private struct Transition: Hashable {
        var from: Identifier?
        var to: Identifier?
    }

    /// Returns the moves of all users whom the audience admits, in the order of the variations.
    private static func moves(from former: Experiment?, to edited: Experiment) -> [Move] {
        let order = edited.variations.map(\.id) + (former?.variations.map(\.id) ?? [])
        func rank(_ id: Identifier?) -> Int { id.flatMap { order.firstIndex(of: $0) } ?? order.count }
        func key(_ id: Identifier?) -> Identifier? {
            id.map { edited.variation(id: $0)?.key ?? former?.variation(id: $0)?.key ?? $0 }
        }
        let sorted = movedShares(from: former, to: edited).sorted { left, right in
            (rank(left.key.from), rank(left.key.to)) < (rank(right.key.from), rank(right.key.to))
        }
        return sorted.map { transition, share in
            Move(from: key(transition.from), to: key(transition.to), share: rounded(share))
        }
    }

    /// Returns the percentage of users for each transition between different variations.
    ///
    /// Users of a group are bucketed twice, independently: into an experiment of the group, and into a variation. So
    /// the shares of the two are multiplied.
    private static func movedShares(from former: Experiment?, to edited: Experiment) -> [Transition: Double] {
        let inGroup = shares(membership(former), membership(edited), areSame: groupID(former) == groupID(edited))
        let ofVariations = shares(owners(former), owners(edited), areSame: former?.id ?? edited.id == edited.id)
        var moved: [Transition: Double] = [:]
        for (member, memberShare) in inGroup {
            for (owner, ownerShare) in ofVariations {
                // Users whom the group does not give to the experiment get none of its variations.
                let transition = Transition(
                    from: member.from == nil ? nil : owner.from, to: member.to == nil ? nil : owner.to)
                if transition.from != transition.to {
                    moved[transition, default: 0] += memberShare * ownerShare * 100
                }
            }
        }
        return moved
    }

    /// Returns the share of users for each transition, as a fraction.
    ///
    /// - Parameters:
    ///   - former: what the users of each bucket value have before the change.
    ///   - edited: what they have after it.
    ///   - areSame: whether users have the same bucket values before and after the change. Otherwise both are
    ///     independent.
    private static func shares(
        _ former: [Identifier?], _ edited: [Identifier?], areSame: Bool
    ) -> [Transition: Double] {
        var shares: [Transition: Double] = [:]
        let unit = 1 / Double(Bucketer.bucketCount)
        guard !areSame else {
            for (from, to) in zip(former, edited) { shares[Transition(from: from, to: to), default: 0] += unit }
            return shares
        }
        let formerCounts = Dictionary(grouping: former, by: { $0 }).mapValues(\.count)
        let editedCounts = Dictionary(grouping: edited, by: { $0 }).mapValues(\.count)
        for (from, formerCount) in formerCounts {
            for (to, editedCount) in editedCounts {
                shares[Transition(from: from, to: to)] = Double(formerCount) * unit * Double(editedCount) * unit
            }
        }
        return shares
    }

    /// Returns the variation that new users of each bucket value get; `nil` for none.
    private static func owners(_ experiment: Experiment?) -> [Identifier?] {
        (0..<Bucketer.bucketCount).map { value in
            guard let experiment, experiment.isRunning, let id = experiment.trafficAllocation.entity(at: value) else {
                return nil
            }
            return experiment.variation(id: id)?.id
        }
    }

    /// Returns the id of the experiment for each bucket value of the group whose users it may enroll, and `nil` for the
    /// others. Without a group these are all users.
    private static func membership(_ experiment: Experiment?) -> [Identifier?] {
        (0..<Bucketer.bucketCount).map { value in
            guard let experiment else { return nil }
            guard let group = experiment.exclusionGroup else { return experiment.id }
            return group.trafficAllocation.entity(at: value) == experiment.id ? experiment.id : nil
        }
    }

    static func groupID(_ experiment: Experiment?) -> Identifier? {
        experiment?.exclusionGroup?.id
    }
}

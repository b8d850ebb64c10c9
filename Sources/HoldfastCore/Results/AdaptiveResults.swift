public import Bucketing
public import Chronology
import Definitions
import JSON
import Statistics
public import Storage

/// Estimates for an experiment whose bandit has changed the weights of the variations.
///
/// With changing weights, plain means are biased: a variation gets many users after a time in which it did well, and
/// users of different times may differ. Each user is therefore weighted with the inverse of the probability of the
/// user's variation (``AdaptiveMeans``). The probability is the share of the variation in the allocation period in
/// which the user was enrolled.
///
/// The store counts totals by allocation period (``SeriesDefinition/Content/periods``) only since the experiment has
/// a bandit. Users who were exposed earlier are only in the tally of all users. Their totals are the difference between
/// that tally and the sum of all periods.
///
/// The users are divided into batches. All users of a batch had the same probabilities.
public struct AdaptiveResults: Sendable {
    /// The weighted samples of a variation.
    struct Samples: Sendable {
        var conversion: Sample
        var value: Sample
    }

    /// The number of counted users with known probabilities.
    public let users: Int
    /// The number of users whose variation has an unknown probability. They are excluded.
    public let usersWithoutProbability: Int
    /// The samples, in the order of the variations.
    let samples: [Samples]

    /// Reads the tallies of an experiment by allocation period.
    ///
    /// - Parameters:
    ///   - name: the goal, or the name under which a metric is tallied.
    ///   - time: the time at which the results were frozen; `nil` for current results.
    /// - Returns: `nil` if the experiment has no bandit, or if its periods are not tallied yet.
    public static func read(
        _ name: Identifier, of experiment: Experiment, in project: Project, frozenAt time: Instant?,
        _ store: any StoreSession
    ) async throws(StorageError) -> BreakdownTally? {
        guard project.hasBandit(experiment) else { return nil }
        let series = try await store.read(.series(experimentID: experiment.id))
        guard let periods = series.first(where: { $0.definition.content == .periods }) else { return nil }
        return try await store.read(
            .breakdown(experimentID: experiment.id, series: periods.number, goal: name, frozenAt: time))
    }

    /// - Parameters:
    ///   - tally: the tally of all users.
    ///   - periods: the tallies by period, without the users who were exposed before the bandit.
    ///   - counted: returns a tally without the users who do not count.
    init(
        _ tally: ExperimentTally, _ periods: BreakdownTally, of variations: [Identifier],
        _ counted: (ExperimentTally) -> ExperimentTally
    ) {
        let batches = Self.batches(tally, periods, of: variations, counted)
        var conversionBatches: [AdaptiveMeans.Batch] = []
        var valueBatches: [AdaptiveMeans.Batch] = []
        for batch in batches {
            guard let probabilities = batch.probabilities else { continue }
            conversionBatches.append(AdaptiveMeans.Batch(shares: probabilities, samples: batch.conversions))
            valueBatches.append(AdaptiveMeans.Batch(shares: probabilities, samples: batch.values))
        }
        let conversions = AdaptiveMeans(conversionBatches, of: variations.count).samples
        let values = AdaptiveMeans(valueBatches, of: variations.count).samples
        samples = zip(conversions, values).map { Samples(conversion: $0, value: $1) }
        usersWithoutProbability = batches.reduce(0) { $0 + ($1.probabilities == nil ? $1.users : 0) }
        users = batches.reduce(0) { $0 + $1.users } - usersWithoutProbability
    }

    // MARK: Batches of users with the same probabilities

    /// Users whose variations had the same probabilities.
    private struct Batch {
        /// The start of the users' enrollment, for the order of the batches. Users from before the bandit have the
        /// distant past, and users of an unknown period the distant future.
        let since: Instant
        /// The probability of each variation; `nil` if it is unknown.
        let probabilities: [Double]?
        /// The unweighted samples of the rate, one for each variation.
        let conversions: [Sample]
        /// The unweighted samples of the mean value, one for each variation.
        let values: [Sample]
        /// The number of counted users of all variations.
        let users: Int

        /// - Parameter shares: the share of each variation in the allocation; `nil` if it is unknown.
        /// - Returns: `nil` without users.
        init?(
            since: Instant, shares: [Double]?, _ tallies: [Identifier: VariationTally], of variations: [Identifier]
        ) {
            users = variations.reduce(0) { $0 + (tallies[$1]?.counted ?? 0) }
            guard users > 0 else { return nil }
            let data = variations.map { VariationData(tallies[$0] ?? VariationTally(variationID: $0)) }
            self.since = since
            probabilities = shares.flatMap(AdaptiveResults.normalized)
            conversions = data.map(\.conversion)
            values = data.map(\.value.sample)
        }
    }

    /// Returns a batch for each allocation period, and a batch for the users from before the bandit, in the order of
    /// time.
    private static func batches(
        _ tally: ExperimentTally, _ periods: BreakdownTally, of variations: [Identifier],
        _ counted: (ExperimentTally) -> ExperimentTally
    ) -> [Batch] {
        let allocations = Dictionary(tally.periods.map { ($0.number, $0) }, uniquingKeysWith: { first, _ in first })
        let all = counted(tally)
        // The users from before the bandit: all users, from whom the users of each period are subtracted below.
        var earlier = all.byVariation
        var earlierByPeriod = all.countedByPeriod
        var batches: [Batch] = []
        for index in periods.indices {
            let number = Int64(index)
            let tallies = counted(periods.tally(of: index)).byVariation
            for (id, tally) in tallies {
                earlier[id]?.subtract(tally)
                earlierByPeriod[number]?[id]? -= tally.counted
            }
            let period = allocations[number]
            let batch = Batch(
                since: period?.since ?? .distantFuture, shares: period.map { shares(of: variations, in: $0) }, tallies,
                of: variations)
            if let batch { batches.append(batch) }
        }
        let average = averageShares(of: variations, earlierByPeriod, allocations)
        if let batch = Batch(since: .distantPast, shares: average, earlier, of: variations) { batches.append(batch) }
        return batches.sorted { $0.since < $1.since }
    }

    /// Returns the mean of the shares in the periods before the bandit, weighted by the numbers of users.
    ///
    /// For the users from before the bandit, only their number is known by period, but not their totals. They therefore
    /// form one batch with the mean of the shares. This is exact if the ratio never changed before the bandit.
    ///
    /// - Parameter counted: the numbers of users by period and variation.
    /// - Returns: relative shares; `nil` if there are no users in a period with a known allocation.
    private static func averageShares(
        of variations: [Identifier], _ counted: [Int64: [Identifier: Int]], _ allocations: [Int64: AllocationPeriod]
    ) -> [Double]? {
        var average: [Double]?
        // Sorted, so that the sums are rounded in the same way each time.
        for (number, byVariation) in counted.sorted(by: { $0.key < $1.key }) {
            let users = Double(variations.reduce(0) { $0 + max(0, byVariation[$1] ?? 0) })
            guard users > 0, let period = allocations[number],
                let ratio = normalized(shares(of: variations, in: period))
            else { continue }
            average = zip(average ?? ratio.map { _ in 0 }, ratio).map { $0 + $1 * users }
        }
        return average
    }

    /// Returns the share of each variation in a period, in the unit of the allocation.
    private static func shares(of variations: [Identifier], in period: AllocationPeriod) -> [Double] {
        let shares = period.allocation.shares
        return variations.map { Double(shares[$0] ?? 0) }
    }

    /// Returns the shares as parts of 1; `nil` if all are 0.
    private static func normalized(_ shares: [Double]) -> [Double]? {
        let sum = shares.reduce(0, +)
        return sum > 0 ? shares.map { $0 / sum } : nil
    }

    // MARK: Chances

    /// Returns the probability of each variation to be the best one.
    ///
    /// - Returns: `nil` if there is not enough data to distinguish the variations.
    func chances(_ statistic: MetricDefinition.Statistic, isDecrease: Bool) -> [Double]? {
        Self.chances(
            of: samples.map { statistic == .rate ? $0.conversion : $0.value }, statistic, isDecrease: isDecrease)
    }

    /// Returns the probability of each sample to have the best mean; see ``chances(_:isDecrease:)``.
    static func chances(
        of samples: [Sample], _ statistic: MetricDefinition.Statistic, isDecrease: Bool
    ) -> [Double]? {
        let total = samples.reduce(0) { $0 + $1.count }
        // With few users the estimated variance of a variation may be far too small, or 0. The variance of its mean is
        // therefore at least that of a Bayesian estimate of the rate, or that by the pooled variance of all variations.
        let pooled = samples.reduce(0) { $0 + $1.count * $1.variance } / total
        guard !samples.isEmpty, samples.allSatisfy({ $0.count > 0 }), pooled > 0 else { return nil }
        let means = samples.map { sample -> Effect in
            let own = sample.variance / sample.count
            let least =
                statistic == .rate
                ? Beta(1 + sample.count * sample.mean.clamped, 1 + sample.count * (1 - sample.mean.clamped)).variance
                : pooled / sample.count
            return Effect(estimate: isDecrease ? -sample.mean : sample.mean, variance: max(own, least))
        }
        return ChanceToBeBest.of(means)
    }
}

extension ExperimentTally {
    /// The tallies of the variations, by id.
    var byVariation: [Identifier: VariationTally] {
        Dictionary(variations.map { ($0.variationID, $0) }, uniquingKeysWith: { first, _ in first })
    }
}

extension VariationTally {
    /// Removes the counted users of another tally, and what they did.
    fileprivate mutating func subtract(_ other: VariationTally) {
        counted -= other.counted
        goal = goal + -other.goal
    }
}

extension Double {
    /// The nearest number from 0 to 1.
    fileprivate var clamped: Double { Swift.min(Swift.max(self, 0), 1) }
}

extension Beta {
    fileprivate var variance: Double { standardDeviation * standardDeviation }
}

extension Project {
    /// Whether a bandit changes the weights of an experiment.
    public func hasBandit(_ experiment: Experiment) -> Bool {
        definitions.experiment(id: experiment.id)?.details.bandit != nil
    }
}

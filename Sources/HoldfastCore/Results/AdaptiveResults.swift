public import Bucketing
public import Chronology
import Definitions
import JSON
import Statistics
public import Storage

/// Estimates for an experiment whose bandit has changed the weights. Each user is weighted with the inverse of the
/// probability of the user's variation, which is the share of the variation in the user's allocation period.
public struct AdaptiveResults: Sendable {
    /// The samples of a variation by which it is compared.
    struct Samples: Sendable {
        var conversion: Sample
        var value: Sample
    }

    /// The number of users who are counted.
    public let users: Int
    /// The number of users whose variation has an unknown probability. They are excluded.
    public let usersWithoutProbability: Int
    /// The samples, in the order of the variations.
    let samples: [Samples]

    /// Reads the users of an experiment by periods.
    ///
    /// - Parameters:
    ///   - name: the goal, or the name under which a metric is tallied.
    ///   - time: when the results were frozen; `nil` for the current ones.
    /// - Returns: `nil` if the experiment has no bandit.
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
    ///   - periods: the tallies by period. Users who were exposed before the bandit are in `tally` only.
    ///   - counted: removes users who do not count from a tally.
    init(
        _ tally: ExperimentTally, _ periods: BreakdownTally, of variations: [Identifier],
        _ counted: (ExperimentTally) -> ExperimentTally
    ) {
        let known = Dictionary(tally.periods.map { ($0.number, $0) }, uniquingKeysWith: { first, _ in first })
        let all = counted(tally)
        var rest = Dictionary(all.variations.map { ($0.variationID, $0) }, uniquingKeysWith: { first, _ in first })
        var restByPeriod = all.countedByPeriod
        var batches: [(since: Instant, batch: AdaptiveMeans.Batch?, values: [Sample], users: Int)] = []
        func add(_ shares: [Double]?, since: Instant, _ tallies: [Identifier: VariationTally]) {
            let data = variations.map { VariationData(tallies[$0] ?? VariationTally(variationID: $0)) }
            let users = variations.reduce(0) { $0 + (tallies[$1]?.counted ?? 0) }
            guard users > 0 else { return }
            let batch = shares.flatMap(Self.normalized).map {
                AdaptiveMeans.Batch(shares: $0, samples: data.map(\.conversion))
            }
            batches.append((since, batch, data.map(\.value.sample), users))
        }
        for index in periods.indices {
            let number = Int64(index)
            let tallies = Dictionary(
                counted(periods.tally(of: index)).variations.map { ($0.variationID, $0) },
                uniquingKeysWith: { first, _ in first })
            for (id, tally) in tallies {
                rest[id]?.subtract(tally)
                restByPeriod[number]?[id]? -= tally.counted
            }
            let shares = known[number]?.allocation.shares
            add(
                shares.map { shares in variations.map { Double(shares[$0] ?? 0) } },
                since: known[number]?.since ?? .distantFuture, tallies)
        }
        // Only the number of the other users is known by period. This is sufficient if the ratio never changed before
        // the bandit.
        var average: [Double]?
        for (number, users) in restByPeriod {
            let users = Double(variations.reduce(0) { $0 + max(0, users[$1] ?? 0) })
            guard users > 0, let shares = known[number]?.allocation.shares,
                let ratio = Self.normalized(variations.map { Double(shares[$0] ?? 0) })
            else { continue }
            average = zip(average ?? ratio.map { _ in 0 }, ratio).map { $0 + $1 * users }
        }
        add(average, since: .distantPast, rest)
        batches.sort { $0.since < $1.since }
        let usable = batches.compactMap { entry in entry.batch.map { (batch: $0, values: entry.values) } }
        let conversions = AdaptiveMeans(usable.map(\.batch), of: variations.count).samples
        let values = AdaptiveMeans(
            usable.map { AdaptiveMeans.Batch(shares: $0.batch.shares, samples: $0.values) }, of: variations.count
        ).samples
        samples = zip(conversions, values).map { Samples(conversion: $0, value: $1) }
        usersWithoutProbability = batches.reduce(0) { $0 + ($1.batch == nil ? $1.users : 0) }
        users = batches.reduce(0) { $0 + $1.users } - usersWithoutProbability
    }

    private static func normalized(_ shares: [Double]) -> [Double]? {
        let sum = shares.reduce(0, +)
        return sum > 0 ? shares.map { $0 / sum } : nil
    }

    /// Returns the probability of each variation to be the best one.
    ///
    /// - Returns: `nil` if there is not enough data to distinguish the variations.
    func chances(_ statistic: MetricDefinition.Statistic, isDecrease: Bool) -> [Double]? {
        Self.chances(
            of: samples.map { statistic == .rate ? $0.conversion : $0.value }, statistic, isDecrease: isDecrease)
    }

    static func chances(
        of samples: [Sample], _ statistic: MetricDefinition.Statistic, isDecrease: Bool
    ) -> [Double]? {
        let total = samples.reduce(0) { $0 + $1.count }
        // With few users the estimated variance of a variation may be far too small, or 0.
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

extension VariationTally {
    fileprivate mutating func subtract(_ other: VariationTally) {
        counted -= other.counted
        goal = goal + -other.goal
    }
}

extension Double {
    fileprivate var clamped: Double { Swift.min(Swift.max(self, 0), 1) }
}

extension Beta {
    fileprivate var variance: Double { standardDeviation * standardDeviation }
}

extension Project {
    public func hasBandit(_ experiment: Experiment) -> Bool {
        definitions.experiment(id: experiment.id)?.details.bandit != nil
    }
}

// MARK: - Looks of a bandit

extension Bandit.Look {
    /// Reads the users of an experiment for a look of its bandit.
    static func read(
        _ bandit: Bandit, _ experiment: Experiment, of project: Project, at now: Instant, _ session: any StoreSession
    ) async throws -> Bandit.Look {
        var look = Bandit.Look()
        guard let key = project.metrics(of: experiment).primary.first, let metric = project.definitions.metrics[key]
        else {
            look.reason = "the experiment has no primary metric"
            return look
        }
        guard metric.statistic != .ratio else {
            look.reason = "the metric '\(key)' is a \(metric.kind.rawValue), which no bandit learns from"
            return look
        }
        let totals = try await ResultsReader(ResultsScope(experiment, in: project, .live, at: now), session)
            .totals(of: metric)
        guard let periods = totals.periods, let measured = totals.measured, !measured.isFilling else {
            look.reason = "the users of the metric '\(key)' are still being counted"
            return look
        }
        let ids = experiment.variations.map(\.id)
        let counted = measured.counted(at: now)
        let results = AdaptiveResults(measured.tally, periods, of: ids, counted)
        look.users = results.users
        let tallies = Dictionary(
            counted(measured.tally).variations.map { ($0.variationID, $0.counted) }, uniquingKeysWith: +)
        let few = experiment.variations.filter { tallies[$0.id] ?? 0 < bandit.leastUsers }.map(\.key.string)
        guard few.isEmpty else {
            look.reason = "fewer than \(bandit.leastUsers) users in \(few.joined(separator: ", "))"
            return look
        }
        guard let chances = results.chances(metric.statistic, isDecrease: metric.direction == .decrease) else {
            look.reason = "no user has done what the metric '\(key)' counts"
            return look
        }
        look.chances = Dictionary(zip(ids, chances), uniquingKeysWith: { first, _ in first })
        return look
    }
}

extension MeasuredMetric {
    /// Returns a function that removes the users whose time window has not ended.
    func counted(at now: Instant) -> (ExperimentTally) -> ExperimentTally {
        let last = ResultsFilter().lastDay(definition, at: now)
        return { tally in last.map { tally.enrolled(on: Int64.min...$0) } ?? tally }
    }
}

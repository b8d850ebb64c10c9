public import Bucketing
public import Chronology
public import Definitions
import Statistics
public import Storage

/// The results of an experiment for one goal or metric: each variation compared with the baseline.
///
/// The results are computed from tallies, which the store keeps by variation and day of enrollment:
/// 1. The query restricts the days of enrollment (``ResultsQuery/enrolledOn``), and excludes users whose time window
///    has not ended (``enrolledUntil``).
/// 2. The split of the users is compared with the traffic allocation (``sampleRatio``). This also determines the ranges
///    of days in which the ratio of the variations did not change.
/// 3. Each variation is compared with the baseline within each of these ranges, and the differences are combined
///    (``VariationData``). A bandit changes the ratio all the time, so the users of its experiment are weighted instead
///    (``adaptive``).
///
/// ``Warning`` and ``verdict`` interpret the results.
public struct ExperimentResults: Sendable {
    /// A variation with its numbers of users and its estimates.
    public struct VariationResult: Sendable {
        public var id: Identifier
        public var key: Identifier
        public var isBaseline: Bool
        /// The variation's share of the current traffic, in hundredths of a percent.
        public var weight: Int
        /// The expected share of the counted users, by the allocations under which they were assigned; `nil` if no
        /// allocation is known.
        public var expectedShare: Double?
        /// The numbers of users of the variation, and the sums of the goal or the metric over the counted users.
        public var tally: VariationTally
        /// The estimate of the share of users who reached the goal.
        public var conversion: Estimate
        /// The estimate of the mean value; `nil` if no event of the goal has a value.
        public var value: Estimate?
        /// The estimate of the metric; `nil` for a goal.
        public var metric: Estimate?
        /// The steps of a funnel; empty for other metrics.
        public var steps: [Step] = []

        /// The key as text, for sentences.
        public var name: String { key.string }
    }

    /// The users of a variation who reached a step of a funnel.
    public struct Step: Sendable {
        public var goal: Identifier
        /// The number of users of the variation who reached the step.
        public var converted: Int
        /// The estimate of the share of all users of the variation.
        public var estimate: Estimate
    }

    /// A variation that was removed from the experiment. Its users are excluded, unless the variation is added again.
    public struct RemovedVariation: Sendable {
        public var id: Identifier
        /// The key of the variation; `nil` if the datafile does not have it.
        public var key: Identifier?
        public var users: UserCounts
    }

    /// An estimate of a rate, a mean or a ratio over all users of a variation.
    public struct Estimate: Sendable {
        /// The rate, the mean or the ratio; NaN for a ratio without a denominator.
        public var mean: Double
        /// The standard deviation of the values of single users, not of the mean.
        public var standardDeviation: Double
        /// The comparison with the baseline; `nil` for the baseline itself.
        public var comparison: ResultsComparison?
        /// The statistical power of the comparison; `nil` for the baseline.
        public var power: ResultsPower?
    }

    /// An A/A test: `control` compared with `control-check`, which has the same content. The p-values are always valid.
    public struct ControlCheck: Sendable {
        /// The p-value for the share of users who reached the goal, or for a metric that is a rate.
        public var conversionPValue: Double?
        /// The p-value for the mean value of the goal, or for a metric that is a mean or a ratio.
        public var valuePValue: Double?

        /// The maximum probability that two groups with the same content are ever reported as different, at any number
        /// of looks.
        static let threshold = 0.01

        /// Whether a p-value is below the threshold, corrected for the number of p-values.
        public var isSuspicious: Bool {
            let pValues = [conversionPValue, valuePValue].compactMap { $0 }
            return pValues.contains { $0 * Double(pValues.count) < Self.threshold }
        }
    }

    public let experiment: Experiment
    public let sdkKey: String
    /// When the totals were frozen by a conclusion; `nil` for current totals.
    public let frozenAt: Instant?
    public let query: ResultsQuery
    /// The metric that is compared; `nil` if a goal is compared.
    public let measured: MeasuredMetric?
    /// The experiment's variations in their order.
    public let variations: [VariationResult]
    public let removedVariations: [RemovedVariation]
    public let sampleRatio: SampleRatioCheck
    /// The tallies of each day of enrollment, in order.
    public let days: [ExperimentTally.Day]
    /// The rate at which users are enrolled.
    public let enrollment: EnrollmentRate
    /// The A/A test; `nil` unless the experiment has both `control` and `control-check`.
    public let controlCheck: ControlCheck?
    /// The last UTC day of enrollment whose users count. Users who were enrolled later are excluded because their time
    /// window has not ended. `nil` if all users count.
    public let enrolledUntil: Int64?
    /// Other goals that exposed users reached; empty unless nobody reached the requested goal.
    public let otherGoals: [Identifier]
    /// The number of exposures that happened while the experiment was not running, on any day.
    public let notRunning: Int
    /// The weighted samples; `nil` unless the experiment has a bandit.
    public let adaptive: AdaptiveResults?
    /// The results by the values of an attribute; `nil` if they were not requested.
    public internal(set) var breakdown: BreakdownResults?
    /// The totals of single users; `nil` if a few users cannot have most of the sum.
    var userTotals: UserTotals?

    /// - Parameters:
    ///   - tally: the tally of the goal or the metric.
    ///   - measured: the metric to compare; `nil` to compare a goal.
    ///   - periods: the parts of `tally` by allocation period, for an experiment with a bandit.
    ///   - otherGoals: other goals that exposed users reached, for a warning.
    ///   - formerKeys: the keys of former variations of the experiment, by id.
    ///   - frozenAt: the time at which the totals were frozen; `nil` for current totals.
    ///   - now: the time of the query.
    /// - Throws: 422 if the baseline does not exist.
    public init(
        _ experiment: Experiment, sdkKey: String, _ query: ResultsQuery, _ tally: ExperimentTally,
        of measured: MeasuredMetric? = nil, periods: BreakdownTally? = nil, otherGoals: [Identifier] = [],
        formerKeys: [Identifier: Identifier] = [:],
        frozenAt: Instant? = nil, now: Instant
    ) throws(CoreError) {
        self.experiment = experiment
        self.sdkKey = sdkKey
        self.frozenAt = frozenAt
        self.query = query
        self.measured = measured
        self.otherGoals = otherGoals
        notRunning = tally.notRunning
        let baseline = try Self.baseline(of: experiment, query.baseline)
        let selection = UserSelection(
            enrolledOn: query.enrolledOn, lastDay: query.filter.lastDay(measured?.definition, at: now))
        enrolledUntil = selection.lastDay
        // The split and the rate of enrollment also include users whose time window has not ended.
        let enrolled = selection.enrolled(tally)
        sampleRatio = SampleRatioCheck(enrolled, of: experiment)
        enrollment = EnrollmentRate(enrolled.days, at: now)
        adaptive = periods.map { periods in
            AdaptiveResults(tally, periods, of: experiment.variations.map(\.id), selection.counted)
        }

        let counted = selection.counted(tally)
        let currentIDs = Set(experiment.variations.map(\.id))
        let allTallies = counted.variations
        let currentTallies = allTallies.filter { currentIDs.contains($0.variationID) }
        let removedTallies = allTallies.filter { !currentIDs.contains($0.variationID) }
        removedVariations = removedTallies.filter { $0.users != UserCounts() }
            .map { RemovedVariation(id: $0.variationID, key: formerKeys[$0.variationID], users: $0.users) }
        days = counted.days.map { day in
            ExperimentTally.Day(
                day: day.day, variations: day.variations.filter { currentIDs.contains($0.variationID) })
        }

        // A bandit's users are weighted, so they are not divided by ranges of days.
        let users = UsersByVariation(counted, by: adaptive == nil ? sampleRatio.daysByRatio : [])
        let hasValues = measured == nil && currentTallies.contains { $0.goal.hasValues }
        let samples = adaptive?.samples
        let baselineIndex = experiment.variations.firstIndex { $0.id == baseline.id }
        let comparer = VariationComparer(
            baselineID: baseline.id, baseline: users.data(of: baseline.id, baselineIndex.flatMap { samples?[$0] }),
            definition: measured?.definition, hasValues: hasValues, users: users, enrollment: enrollment, query: query)
        let steps = Self.steps(
            measured, selection.counted, of: experiment, against: baseline.id, by: sampleRatio.daysByRatio, query)
        let results = comparer.results(
            of: experiment, samples, expectedShares: sampleRatio.expectedShares, steps: steps)
        variations = results
        controlCheck = Self.controlCheck(results, measured?.definition, hasValues: hasValues) { id in
            let index = experiment.variations.firstIndex { $0.id == id }
            return users.data(of: id, index.flatMap { samples?[$0] })
        }
    }

    /// The goal or the key of the metric that is compared.
    public var subject: Identifier { query.goal ?? measured?.definition.key ?? "" }

    /// Returns the estimate for the verdict: of the metric, or of the statistic of the goal that the query names.
    public func estimate(of variation: VariationResult) -> Estimate? {
        guard measured == nil else { return variation.metric }
        return query.metric == .conversion ? variation.conversion : variation.value
    }

    /// The variation with which the others are compared.
    public var baseline: VariationResult? { variations.first(where: \.isBaseline) }

    /// Whether an event of the goal has a value.
    public var hasValues: Bool { variations.contains { $0.value != nil } }

    /// The number of users who count.
    public var counted: Int { variations.reduce(0) { $0 + $1.tally.counted } }
    /// The number of users who were exposed to more than one variation; they do not count.
    public var multipleVariations: Int { variations.reduce(0) { $0 + $1.tally.multipleVariations } }
    /// The number of users whose variation was not chosen by chance, but by an override or a forced variation; they do
    /// not count.
    public var chosen: Int { variations.reduce(0) { $0 + $1.tally.chosen } }

    /// The number of counted users of variations that the experiment no longer has.
    public var excludedUsers: Int { removedVariations.reduce(0) { $0 + $1.users.counted } }

    // MARK: Users who count

    /// Selects the users who count by their days of enrollment.
    private struct UserSelection {
        /// The days that the query requests; `nil` for all.
        let enrolledOn: ClosedRange<Int64>?
        /// The last day whose users count, because their time window has ended; `nil` if all users count.
        let lastDay: Int64?

        /// Returns the users who were enrolled on the requested days.
        func enrolled(_ tally: ExperimentTally) -> ExperimentTally {
            guard let enrolledOn else { return tally }
            return tally.enrolled(on: enrolledOn)
        }

        /// Returns the users who were enrolled on the requested days, and whose time window has ended.
        func counted(_ tally: ExperimentTally) -> ExperimentTally {
            let tally = enrolled(tally)
            guard let lastDay else { return tally }
            return tally.enrolled(on: Int64.min...lastDay)
        }
    }

    /// The tallies of each variation, in total and by ranges of days of enrollment in which the ratio of the variations
    /// did not change.
    private struct UsersByVariation {
        private let tallies: [Identifier: VariationTally]
        /// The tallies of each range, by variation; empty if there is only one range.
        private let parts: [Identifier: [VariationTally]]

        init(_ tally: ExperimentTally, by ranges: [ClosedRange<Int64>]) {
            tallies = tally.byVariation
            var parts: [Identifier: [VariationTally]] = [:]
            for (index, range) in ranges.enumerated() where ranges.count > 1 {
                for part in tally.enrolled(on: range).variations {
                    let id = part.variationID
                    let empty = VariationTally(variationID: id)
                    parts[id, default: ranges.map { _ in empty }][index] = part
                }
            }
            self.parts = parts
        }

        func tally(of id: Identifier) -> VariationTally { tallies[id] ?? VariationTally(variationID: id) }

        /// Returns the samples of a variation.
        ///
        /// - Parameter adaptive: the weighted samples, if the experiment has a bandit.
        func data(of id: Identifier, _ adaptive: AdaptiveResults.Samples? = nil) -> VariationData {
            VariationData(tally(of: id), parts[id], adaptive)
        }
    }

    // MARK: Comparisons

    /// Compares variations with the baseline.
    private struct VariationComparer {
        let baselineID: Identifier
        let baseline: VariationData
        /// The metric; `nil` for a goal.
        let definition: MetricDefinition?
        /// Whether an event of the goal has a value.
        let hasValues: Bool
        let users: UsersByVariation
        let enrollment: EnrollmentRate
        let query: ResultsQuery

        /// Returns the estimates of all variations, in order.
        ///
        /// - Parameters:
        ///   - samples: the weighted samples of the variations, if the experiment has a bandit.
        ///   - expectedShares: the expected share of the users of each variation; `nil` if it is unknown.
        ///   - steps: the steps of a funnel, by variation.
        func results(
            of experiment: Experiment, _ samples: [AdaptiveResults.Samples]?, expectedShares: [Double]?,
            steps: [Identifier: [Step]]
        ) -> [VariationResult] {
            let weights = experiment.shares
            return experiment.variations.enumerated().map { index, variation in
                result(
                    of: variation, samples?[index], weight: weights[variation.id] ?? 0,
                    expectedShare: expectedShares?[index], steps: steps[variation.id] ?? [])
            }
        }

        /// Returns the estimates of a variation, compared with the baseline.
        ///
        /// - Parameters:
        ///   - adaptive: the weighted samples of the variation, if the experiment has a bandit.
        ///   - weight: the variation's share of the current traffic, in hundredths of a percent.
        private func result(
            of variation: Variation, _ adaptive: AdaptiveResults.Samples?, weight: Int, expectedShare: Double?,
            steps: [Step]
        ) -> VariationResult {
            let id = variation.id
            let data = users.data(of: id, adaptive)
            let reference = id == baselineID ? nil : baseline
            var result = VariationResult(
                id: id, key: variation.key, isBaseline: id == baselineID, weight: weight, expectedShare: expectedShare,
                tally: users.tally(of: id), conversion: data.estimate(.rate, against: reference, query),
                value: hasValues ? data.estimate(.mean, against: reference, adjustment: .shown, query) : nil,
                metric: definition.map { data.estimate($0, against: reference, query) }, steps: steps)
            if let reference {
                let rates = (variation: enrollment[id], baseline: enrollment[baselineID])
                result.conversion.power = data.conversionPower(against: reference, rates, query)
                result.metric?.power = definition.flatMap { data.power($0, against: reference, rates, query) }
                if hasValues { result.value?.power = data.valuePower(against: reference, rates, query) }
            }
            return result
        }
    }

    /// Returns the steps of a funnel for each variation; empty for any other metric.
    ///
    /// - Parameters:
    ///   - counted: returns a tally without the users who do not count.
    ///   - ranges: the ranges of days within which variations are compared.
    private static func steps(
        _ measured: MeasuredMetric?, _ counted: (ExperimentTally) -> ExperimentTally, of experiment: Experiment,
        against baselineID: Identifier, by ranges: [ClosedRange<Int64>], _ query: ResultsQuery
    ) -> [Identifier: [Step]] {
        guard let measured, measured.definition.kind == .funnel else { return [:] }
        var steps: [Identifier: [Step]] = [:]
        for (goal, tally) in zip(measured.definition.steps, measured.tallies) {
            let users = UsersByVariation(counted(tally), by: ranges)
            let reference = users.data(of: baselineID)
            for id in experiment.variations.map(\.id) {
                let estimate = users.data(of: id).estimate(
                    measured.definition, against: id == baselineID ? nil : reference, query)
                steps[id, default: []].append(
                    Step(goal: goal, converted: users.tally(of: id).goal.converted, estimate: estimate))
            }
        }
        return steps
    }

    /// Returns the variation with which the others are compared.
    ///
    /// - Parameter name: the key or id of a variation; `nil` for `control`, or else the first variation.
    /// - Throws: 422 if the experiment does not have the variation.
    static func baseline(of experiment: Experiment, _ name: Identifier?) throws(CoreError) -> Variation {
        let variations = experiment.variations
        let found =
            if let name {
                experiment.variation(key: name) ?? experiment.variation(id: name)
            } else {
                experiment.variation(key: "control") ?? variations.first
            }
        guard let found else {
            let list = variations.map(\.key.string).joined(separator: ", ")
            let given = name.map { "; got '\($0)'" } ?? ""
            throw CoreError(.unprocessable, "`baseline` must be a variation of the experiment (\(list))\(given)")
        }
        return found
    }

    /// Returns the A/A test; `nil` unless the experiment has both `control` and `control-check`.
    ///
    /// - Parameter data: returns the samples of a variation.
    private static func controlCheck(
        _ variations: [VariationResult], _ definition: MetricDefinition?, hasValues: Bool,
        _ data: (Identifier) -> VariationData
    ) -> ControlCheck? {
        guard let control = variations.first(where: { $0.key == "control" }),
            let check = variations.first(where: { $0.key == "control-check" || $0.key == "control_check" })
        else { return nil }
        func pValue(_ statistic: MetricDefinition.Statistic) -> Double? {
            data(check.id).contrast(statistic, against: data(control.id)).map { Evidence($0).pValue() }
        }
        if let definition {
            let p = pValue(definition.statistic)
            return definition.statistic == .rate ? ControlCheck(conversionPValue: p) : ControlCheck(valuePValue: p)
        }
        return ControlCheck(conversionPValue: pValue(.rate), valuePValue: hasValues ? pValue(.mean) : nil)
    }
}

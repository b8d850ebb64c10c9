public import Bucketing
import Statistics
public import Storage

/// What came of an experiment: each variation against the baseline, for one goal.
public struct ExperimentResults: Sendable {
    /// One variation.
    public struct Arm: Sendable {
        public var id: Identifier
        /// `nil`: the experiment has it no longer.
        public var key: Identifier?
        public var isBaseline: Bool
        /// Its share of the traffic, in hundredths of a percent.
        public var weight: Int
        public var tally: VariationTally
        public var conversion: Estimate
        /// `nil` when no event of the goal has a value.
        public var value: Estimate?

        public var name: String { key?.string ?? id.string }
    }

    /// A rate of converted users, or a mean value of all users, converted or not.
    public struct Estimate: Sendable {
        public var mean: Double
        public var standardDeviation: Double
        /// `nil` for the baseline.
        public var comparison: ResultsComparison?
    }

    public struct ControlCheck: Sendable {
        public var conversionPValue: Double?
        public var valuePValue: Double?

        /// Below it two groups that get the same are taken to differ.
        static let threshold = 0.01

        public var isSuspicious: Bool {
            [conversionPValue, valuePValue].contains { $0.map { $0 < Self.threshold } ?? false }
        }
    }

    public let experiment: Experiment
    public let sdkKey: String
    public let query: ResultsQuery
    /// Those of the experiment in its order, then former ones.
    public let arms: [Arm]
    /// The p-value of the split that was counted, given the traffic allocation in force.
    public let sampleRatioPValue: Double?
    /// `control` against `control-check`, where both exist.
    public let controlCheck: ControlCheck?
    /// Goals that exposed users have reached; filled in when nobody has reached the one that is asked for.
    public let otherGoals: [Identifier]

    /// Below it a split is held to be broken: one test in a thousand raises a false alarm.
    static let sampleRatioThreshold = 0.001

    /// - Parameter tallies: of all variations to which anybody was exposed.
    /// - Throws: 422 when there is no such baseline.
    public init(
        _ experiment: Experiment, sdkKey: String, _ query: ResultsQuery, _ tallies: [VariationTally],
        otherGoals: [Identifier] = []
    ) throws(HoldfastError) {
        self.experiment = experiment
        self.sdkKey = sdkKey
        self.query = query
        self.otherGoals = otherGoals
        let baseline = try Self.baseline(of: experiment, query.baseline)
        let shares = experiment.shares
        let hasValues = tallies.contains { $0.goal.yy.value > 0 }
        let tallyByID = Dictionary(tallies.map { ($0.variationID, $0) }, uniquingKeysWith: { first, _ in first })
        let reference = VariationData(tallyByID[baseline.id] ?? VariationTally(variationID: baseline.id))
        func arm(_ id: Identifier, _ key: Identifier?) -> Arm {
            let tally = tallyByID[id] ?? VariationTally(variationID: id)
            let data = VariationData(tally)
            let against = id == baseline.id ? nil : reference
            return Arm(
                id: id, key: key, isBaseline: id == baseline.id, weight: shares[id] ?? 0, tally: tally,
                conversion: data.conversionEstimate(against: against, query),
                value: hasValues ? data.valueEstimate(against: against, query) : nil)
        }
        let known = Set(experiment.variations.map(\.id))
        let arms =
            experiment.variations.map { arm($0.id, $0.key) }
            + tallies.filter { !known.contains($0.variationID) }.map { arm($0.variationID, nil) }
        self.arms = arms
        sampleRatioPValue = ChiSquare.goodnessOfFit(arms.map(\.tally.counted), weights: arms.map { Double($0.weight) })
        controlCheck = Self.controlCheck(arms, hasValues: hasValues)
    }

    private static func baseline(of experiment: Experiment, _ name: Identifier?) throws(HoldfastError) -> Variation {
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
            throw HoldfastError(.unprocessable, "`baseline` must be a variation of the experiment (\(list))\(given)")
        }
        return found
    }

    private static func controlCheck(_ arms: [Arm], hasValues: Bool) -> ControlCheck? {
        guard let control = arms.first(where: { $0.key == "control" }),
            let check = arms.first(where: { $0.key == "control-check" || $0.key == "control_check" })
        else { return nil }
        let (left, right) = (VariationData(control.tally), VariationData(check.tally))
        return ControlCheck(
            conversionPValue: Comparison(right.conversion, against: left.conversion).twoProportionPValue,
            valuePValue: hasValues ? Comparison(right.value.sample, against: left.value.sample).welchPValue : nil)
    }

    public var baseline: Arm? { arms.first(where: \.isBaseline) }

    public var counted: Int { arms.reduce(0) { $0 + $1.tally.counted } }
    public var crossed: Int { arms.reduce(0) { $0 + $1.tally.crossed } }
    public var forced: Int { arms.reduce(0) { $0 + $1.tally.forced } }

    public var hasSampleRatioMismatch: Bool { sampleRatioPValue.map { $0 < Self.sampleRatioThreshold } ?? false }
}

extension Experiment {
    /// Each variation's share of all users, in hundredths of a percent.
    var shares: [Identifier: Int] {
        var shares: [Identifier: Int] = [:]
        var start = 0
        for range in trafficAllocation.ranges {
            shares[range.entityID, default: 0] += max(0, range.end - start)
            start = max(start, range.end)
        }
        return shares
    }
}

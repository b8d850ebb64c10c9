import Statistics
import Storage

/// The counted users of a variation as statistics see them: a rate of converted users, and a mean of their values.
struct VariationData {
    let conversion: Sample
    /// Whether users converted, with whether they had reached the goal before the exposure.
    let conversionPair: PairedSample
    /// Values since the exposure, with those from before.
    let value: PairedSample
    private let converted: Double

    init(_ tally: VariationTally) {
        let goal = tally.goal
        let count = Double(tally.counted)
        converted = Double(goal.converted)
        conversion = Sample(successes: converted, of: count)
        guard count > 0 else {
            conversionPair = Self.nobody
            value = Self.nobody
            return
        }
        let before = Double(goal.convertedBefore)
        conversionPair = PairedSample(
            count: count, mean: converted / count, meanBefore: before / count,
            squares: converted - converted * converted / count, squaresBefore: before - before * before / count,
            products: Double(goal.convertedBoth) - converted * before / count)
        value = PairedSample(
            count: count, mean: goal.y.value / count, meanBefore: goal.x.value / count,
            squares: (goal.yy - goal.y * goal.y / count).value,
            squaresBefore: (goal.xx - goal.x * goal.x / count).value,
            products: (goal.xy - goal.x * goal.y / count).value)
    }

    private static let nobody = PairedSample(
        count: 0, mean: 0, meanBefore: 0, squares: 0, squaresBefore: 0, products: 0)

    func conversionEstimate(against baseline: VariationData?, _ query: ResultsQuery) -> ExperimentResults.Estimate {
        var estimate = ExperimentResults.Estimate(
            mean: conversion.mean, standardDeviation: conversion.variance.squareRoot())
        guard let baseline, conversion.count > 0, baseline.conversion.count > 0 else { return estimate }
        let comparison = Comparison(conversion, against: baseline.conversion)
        let factor = Normal.quantile((1 + query.confidence) / 2)
        let bayes = RatePosterior(
            successes: converted, of: conversion.count, againstSuccesses: baseline.converted,
            of: baseline.conversion.count
        ).chanceToWinAndExpectedLoss
        estimate.comparison = ResultsComparison(
            comparison, pValue: comparison.twoProportionPValue, factor: factor, chanceToWin: bayes.chance,
            expectedLoss: bayes.loss, adjusted: AdjustedComparison(conversionPair, against: baseline.conversionPair),
            query)
        return estimate
    }

    func valueEstimate(against baseline: VariationData?, _ query: ResultsQuery) -> ExperimentResults.Estimate {
        let sample = value.sample
        var estimate = ExperimentResults.Estimate(mean: sample.mean, standardDeviation: sample.variance.squareRoot())
        guard let baseline else { return estimate }
        let comparison = Comparison(sample, against: baseline.value.sample)
        guard let degrees = comparison.degreesOfFreedom else { return estimate }
        estimate.comparison = ResultsComparison(
            comparison, pValue: comparison.welchPValue,
            factor: StudentT(degreesOfFreedom: degrees).distance(exceededWith: 1 - query.confidence),
            chanceToWin: comparison.chanceToWin, expectedLoss: comparison.expectedLoss,
            adjusted: AdjustedComparison(value, against: baseline.value), query)
        return estimate
    }
}

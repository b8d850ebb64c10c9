/// One of several hypotheses that were tested together.
public struct TestedHypothesis: Sendable, Equatable {
    /// The p-value, corrected for the number of hypotheses.
    public var pValue: Double
    /// The level at which the hypothesis was tested. A confidence interval of this level excludes the hypothesis if and
    /// only if the hypothesis is rejected.
    public var level: Double
    public var isRejected: Bool
}

/// Tests several hypotheses together, such as those of all variations and metrics of an experiment. With many tests at
/// the level α each, some would reject a true hypothesis by chance.
///
/// ``holm(_:alpha:)`` bounds the probability of any such error, ``benjaminiHochberg(_:alpha:)`` the share of errors
/// among the rejections, which finds more effects.
public enum Multiplicity {
    /// Tests with a probability of at most α that any true hypothesis is rejected, however the hypotheses depend on
    /// each other (Holm, A simple sequentially rejective multiple test procedure, 1979).
    ///
    /// - Returns: in the order of the p-values.
    public static func holm(_ pValues: [Double], alpha: Double) -> [TestedHypothesis] {
        var corrected = 0.0
        var level = alpha
        var rejects = true
        return inOrder(pValues) { rank, pValue in
            let remaining = Double(pValues.count - rank)
            corrected = min(1, max(corrected, pValue * remaining))
            // The first hypothesis that is not rejected ends the sequence: all others have its level.
            if rejects {
                level = alpha / remaining
                rejects = pValue <= level
            }
            return TestedHypothesis(pValue: corrected, level: level, isRejected: rejects)
        }
    }

    /// Tests so that the expected share of true hypotheses among the rejected ones is at most α, if the tests are
    /// independent or depend positively on each other (Benjamini and Hochberg, Controlling the false discovery rate,
    /// 1995). Intervals of the levels of rejected hypotheses have the same guarantee (Benjamini and Yekutieli, False
    /// discovery rate-adjusted multiple confidence intervals, 2005).
    ///
    /// - Returns: in the order of the p-values.
    public static func benjaminiHochberg(_ pValues: [Double], alpha: Double) -> [TestedHypothesis] {
        let count = Double(pValues.count)
        let sorted = pValues.sorted()
        // Rejects the hypotheses up to the last one that is below its bound, even if some before are not.
        let lastRejected = sorted.indices.last { rank in sorted[rank] <= alpha * Double(rank + 1) / count }
        let rejectedCount = lastRejected.map { $0 + 1 } ?? 0
        var corrected = sorted
        var least = 1.0
        for rank in sorted.indices.reversed() {
            least = min(least, sorted[rank] * count / Double(rank + 1))
            corrected[rank] = least
        }
        return inOrder(pValues) { rank, _ in
            let isRejected = rank < rejectedCount
            // The level of a hypothesis that is not rejected is the one at which the next hypothesis would be. No
            // remaining p-value is that small, so no interval excludes its hypothesis.
            let level = alpha * Double(isRejected ? rejectedCount : rejectedCount + 1) / count
            return TestedHypothesis(pValue: corrected[rank], level: level, isRejected: isRejected)
        }
    }

    /// Tests hypotheses by ascending p-value, and returns the results in the order of the p-values given.
    ///
    /// - Parameter test: called for each rank from 0, which has the least p-value.
    private static func inOrder(
        _ pValues: [Double], _ test: (_ rank: Int, _ pValue: Double) -> TestedHypothesis
    ) -> [TestedHypothesis] {
        var tested = pValues.map { TestedHypothesis(pValue: $0, level: 0, isRejected: false) }
        let order = pValues.indices.sorted { pValues[$0] < pValues[$1] }
        for (rank, index) in order.enumerated() { tested[index] = test(rank, pValues[index]) }
        return tested
    }
}

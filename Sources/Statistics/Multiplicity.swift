/// One of several hypotheses that were tested together.
public struct TestedHypothesis: Sendable, Equatable {
    /// The p-value, corrected for the number of hypotheses.
    public var pValue: Double
    /// The level at which it was tested: an interval of this level excludes the hypothesis if and only if it is rejected.
    public var level: Double
    public var isRejected: Bool
}

/// Tests several hypotheses together.
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
            let rest = Double(pValues.count - rank)
            corrected = min(1, max(corrected, pValue * rest))
            if rejects {
                level = alpha / rest
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
        let rejected = sorted.indices.last { sorted[$0] <= alpha * Double($0 + 1) / count }.map { $0 + 1 } ?? 0
        var corrected = sorted
        var least = 1.0
        for rank in sorted.indices.reversed() {
            least = min(least, sorted[rank] * count / Double(rank + 1))
            corrected[rank] = least
        }
        return inOrder(pValues) { rank, _ in
            let isRejected = rank < rejected
            let level = alpha * Double(isRejected ? rejected : rejected + 1) / count
            return TestedHypothesis(pValue: corrected[rank], level: level, isRejected: isRejected)
        }
    }

    /// - Parameter test: tests the hypotheses by ascending p-value.
    private static func inOrder(
        _ pValues: [Double], _ test: (_ rank: Int, _ pValue: Double) -> TestedHypothesis
    ) -> [TestedHypothesis] {
        var tested = pValues.map { TestedHypothesis(pValue: $0, level: 0, isRejected: false) }
        let order = pValues.indices.sorted { pValues[$0] < pValues[$1] }
        for (rank, index) in order.enumerated() { tested[index] = test(rank, pValues[index]) }
        return tested
    }
}

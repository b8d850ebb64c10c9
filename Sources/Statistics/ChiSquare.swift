/// Pearson's chi-square test.
public enum ChiSquare {
    /// The probability of a value of at least `x` (Abramowitz and Stegun 26.4.19).
    public static func probability(above x: Double, degreesOfFreedom: Int) -> Double {
        Gamma.upperRegularised(Double(degreesOfFreedom) / 2, x / 2)
    }

    /// How likely counts at least as far from the expected shares are, if these are true.
    ///
    /// - Parameter weights: the expected shares in any unit, one for each count; what has none is not looked at.
    /// - Returns: `nil` when there is nothing to compare.
    public static func goodnessOfFit(_ counts: [Int], weights: [Double]) -> Double? {
        let pairs = zip(counts, weights).filter { $0.1 > 0 }
        let total = Double(pairs.reduce(0) { $0 + $1.0 })
        let weight = pairs.reduce(0) { $0 + $1.1 }
        guard pairs.count > 1, total > 0 else { return nil }
        let distance = pairs.reduce(0.0) { sum, pair in
            let expected = total * pair.1 / weight
            let difference = Double(pair.0) - expected
            return sum + difference * difference / expected
        }
        return probability(above: distance, degreesOfFreedom: pairs.count - 1)
    }
}

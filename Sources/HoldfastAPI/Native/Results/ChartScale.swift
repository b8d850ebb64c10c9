import Glibc

/// An axis with round ticks, which maps values to positions. It covers all values that are drawn, up to 1e100 in
/// magnitude.
struct ChartScale {
    /// The first tick as a multiple of ``step``.
    private let firstTick: Double
    /// The distance of two ticks.
    private let step: Double
    /// The number of steps.
    private let count: Int
    /// The positions of the ends of the axis.
    private let positions: ClosedRange<Double>
    /// The greatest magnitude of a value that the axis covers.
    private static let maximumMagnitude = 1e100

    /// - Parameters:
    ///   - ranges: the ranges of the values to draw.
    ///   - positions: the positions of the ends of the axis.
    init(covering ranges: [ClosedRange<Double>], onto positions: ClosedRange<Double>) {
        let low = max(ranges.map(\.lowerBound).min() ?? 0, -Self.maximumMagnitude)
        let high = max(min(ranges.map(\.upperBound).max() ?? 0, Self.maximumMagnitude), low + 1e-6)
        // Chooses about six steps of 1, 2 or 5 times a power of ten.
        let rough = (high - low) / 6
        let power = pow(10, floor(log10(rough)))
        step = ([1, 2, 5, 10].first { $0 * power >= rough } ?? 10) * power
        firstTick = floor(low / step)
        count = Int(min(20, ceil(high / step) - firstTick))
        self.positions = positions
    }

    /// The values of the ticks, in ascending order.
    var ticks: [Double] { (0...max(1, count)).map { (firstTick + Double($0)) * step } }

    /// Returns the position of a value.
    func position(_ value: Double) -> Double {
        let share = (value / step - firstTick) / Double(max(1, count))
        return positions.lowerBound + share * (positions.upperBound - positions.lowerBound)
    }

    /// Formats a tick with its sign, as a percentage or as a number, with the decimals that ``step`` needs.
    func label(_ tick: Double, isShare: Bool) -> String {
        let factor = isShare ? 100.0 : 1
        // The small term makes up for rounding errors of the logarithm.
        let decimals = max(0, Int(ceil(-log10(step * factor) - 1e-9)))
        let text = NumberText.decimal(abs(tick) * factor, places: decimals) + (isShare ? "%" : "")
        return NumberText.sign(of: tick) + text
    }
}

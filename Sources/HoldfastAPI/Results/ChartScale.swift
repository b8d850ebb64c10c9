import Glibc

/// An axis from values to places, with round numbers on it. It covers all that is drawn; nothing is cut off that can be
/// told from infinity.
struct ChartScale {
    private let low: Double
    private let step: Double
    private let count: Int
    private let places: ClosedRange<Double>
    private static let reach = 1e100

    init(covering ranges: [ClosedRange<Double>], onto places: ClosedRange<Double>) {
        let low = max(ranges.map(\.lowerBound).min() ?? 0, -Self.reach)
        let high = max(min(ranges.map(\.upperBound).max() ?? 0, Self.reach), low + 1e-6)
        // About six steps, of 1, 2 or 5 times a power of ten.
        let rough = (high - low) / 6
        let power = pow(10, floor(log10(rough)))
        step = ([1, 2, 5, 10].first { $0 * power >= rough } ?? 10) * power
        self.low = floor(low / step)
        count = Int(min(20, ceil(high / step) - self.low))
        self.places = places
    }

    var ticks: [Double] { (0...max(1, count)).map { (low + Double($0)) * step } }

    func position(_ value: Double) -> Double {
        let share = (value / step - low) / Double(max(1, count))
        return places.lowerBound + share * (places.upperBound - places.lowerBound)
    }

    /// As a percentage.
    func label(_ tick: Double) -> String {
        let decimals = max(0, Int(ceil(-log10(step * 100) - 1e-9)))
        let text = ResultsChart.decimal(abs(tick) * 100, places: decimals) + "%"
        return tick > 0 ? "+" + text : tick < 0 ? "−" + text : text
    }
}

import Bucketing
import Chronology
import Definitions
import HoldfastCore
import Storage

/// Draws the lift of each variation by days of enrollment, as a line in the band of its intervals, which are valid at
/// every interim look.
struct SeriesChart {
    /// The lift of a variation on one day.
    private struct Point {
        /// The position of the day in the series.
        var day: Int
        var lift: Double
        var interval: ClosedRange<Double>
    }

    /// The line of one variation.
    private struct Line {
        var name: String
        var color: String
        var points: [Point]
    }

    private let series: ResultsSeries
    private let lines: [Line]
    /// Maps lifts to shares of the height, from 0 at the bottom to 1 at the top.
    private let scale: ChartScale

    /// The edges of the plot, in pixels.
    private static let top = 10.0
    private static let bottom = 190.0
    private static let left = 60.0
    private static let right = 690.0
    /// The colors of variations in their order. Variations without a color are not drawn.
    private static let colors = [
        "#5f6b6d", "#0e8482", "#c8641b", "#a83a6f", "#3d63b8", "#7d7212", "#7a4bb0", "#2f7d3a", "#8b5a3c", "#1f7fa3",
    ]
    /// The range of lifts has at least this distance from 0 before it is widened.
    private static let smallestReach = 0.05

    /// - Returns: `nil` if no variation has a lift on two days.
    init?(_ series: ResultsSeries) {
        guard series.days.count > 1 else { return nil }
        let lines = Self.lines(of: series)
        let latest = lines.compactMap(\.points.last)
        guard !latest.isEmpty else { return nil }
        self.series = series
        self.lines = lines
        // Early intervals are very wide. They are cut off, so that later ones stay visible.
        let distances = latest.map { point in max(abs(point.interval.lowerBound), abs(point.interval.upperBound)) }
        let reach = max(Self.smallestReach, distances.max() ?? 0) * 2
        scale = ChartScale(covering: [-reach...reach], onto: 0...1)
    }

    private static func lines(of series: ResultsSeries) -> [Line] {
        var lines: [Line] = []
        for (index, color) in zip(series.whole.variations.indices, colors) {
            let points = series.days.enumerated().compactMap { day, entry -> Point? in
                let comparison = entry.results.estimate(of: entry.results.variations[index])?.comparison
                guard let numbers = comparison?.numbers, let lift = numbers.lift,
                    let interval = numbers.sequentialLiftInterval
                else { return nil }
                return Point(day: day, lift: lift, interval: interval)
            }
            guard points.count > 1 else { continue }
            lines.append(Line(name: series.whole.variations[index].name, color: color, points: points))
        }
        return lines
    }

    /// The chart as an element of an HTML page.
    var element: String {
        var drawing = SVGDrawing(width: 700)
        addGrid(to: &drawing)
        for line in lines { add(line, to: &drawing) }
        addDates(to: &drawing)
        let height = addLegend(to: &drawing)
        return drawing.element(height: height, label: "lift over time")
    }

    // MARK: Parts

    private func addGrid(to drawing: inout SVGDrawing) {
        for tick in scale.ticks {
            drawing.line(
                x: Self.left, y: y(tick), toX: Self.right, toY: y(tick), tick == 0 ? "#8a8f8c" : "#e2e2dd", width: 1)
            drawing.text(
                scale.label(tick, isShare: true), x: Self.left - 8, y: y(tick) + 4, size: 11, "#565d5f", anchor: "end")
        }
    }

    private func add(_ line: Line, to drawing: inout SVGDrawing) {
        let upper = line.points.map { point in (x(point.day), y(point.interval.upperBound)) }
        let lower = line.points.reversed().map { point in (x(point.day), y(point.interval.lowerBound)) }
        drawing.polygon(upper + lower, line.color, opacity: 0.14)
        drawing.polyline(line.points.map { point in (x(point.day), y(point.lift)) }, line.color, width: 2)
    }

    /// Adds the first and the last date below the chart.
    private func addDates(to drawing: inout SVGDrawing) {
        for (day, anchor) in [(0, "start"), (series.days.count - 1, "end")] {
            drawing.text(
                Instant(day: series.days[day].day).date, x: x(day), y: 208, size: 11, "#565d5f", anchor: anchor)
        }
    }

    /// Adds the names of the variations below the dates.
    ///
    /// - Returns: the position below them.
    private func addLegend(to drawing: inout SVGDrawing) -> Double {
        var top = 216.0
        for line in lines {
            drawing.line(x: Self.left, y: top + 10, toX: Self.left + 14, toY: top + 10, line.color, width: 4)
            drawing.text(line.name, x: Self.left + 22, y: top + 14, size: 12, "#1b1e1f", limit: 90)
            top += 18
        }
        return top
    }

    // MARK: Positions

    private func x(_ day: Int) -> Double {
        Self.left + Double(day) / Double(series.days.count - 1) * (Self.right - Self.left)
    }

    /// Returns the position of a lift. Lifts beyond the scale are drawn at its edge.
    private func y(_ lift: Double) -> Double {
        Self.bottom - min(max(scale.position(lift), 0), 1) * (Self.bottom - Self.top)
    }
}

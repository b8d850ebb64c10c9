import Bucketing
import Definitions
import HoldfastCore
import Storage

/// Draws results as SVG, from top to bottom: a heading, the verdict, and a panel for each metric. A panel has the lift
/// of each variation over the baseline, and its intervals.
///
/// A panel has a row for each variation. A thick line is the interval of a single analysis, a thin line the interval
/// that is valid at every interim look, and a circle the estimate.
struct ResultsChart {
    /// A variation compared with the baseline.
    private struct Row {
        /// The name of the variation.
        var name: String
        var comparison: ResultsComparison
        /// Whether the numbers are lifts. If the lift of any row is not bounded, they are differences.
        var isLift: Bool
        var estimate: Double
        /// The interval of a single analysis.
        var interval: ClosedRange<Double>
        /// The interval that is valid at every interim look.
        var sequential: ClosedRange<Double>?
    }

    private let results: ExperimentResults
    private let verdict: Verdict
    private var drawing = SVGDrawing(width: 960)
    /// The vertical position below everything that has been drawn.
    private var top = 0.0

    /// The horizontal positions of the ends of the axis, in pixels. Names are on its left, and numbers on its right.
    private static let plot = 220.0...640.0
    /// The height of a row of a panel, and the left margin, in pixels.
    private static let rowHeight = 44.0
    private static let margin = 24.0
    /// The colors of texts, of less important texts, and of rows by their conclusion.
    private static let ink = "#1f2933"
    private static let faint = "#7b8794"
    private static let better = "#0b7a4b"
    private static let worse = "#b42318"
    private static let undecided = "#475569"

    init(_ results: ExperimentResults) {
        self.results = results
        verdict = results.verdict
        addHeading()
        addVerdict()
        if let metric = results.measured?.definition {
            addPanel("Metric '\(metric.key)'", baseline: results.baseline?.metric?.mean, rows { $0.metric })
        } else {
            addPanel("Conversion rate", baseline: results.baseline?.conversion.mean, rows { $0.conversion })
        }
        if results.baseline?.value != nil {
            addPanel("Mean value of a user", baseline: results.baseline?.value?.mean, rows { $0.value })
        }
        addWarnings()
    }

    /// The chart as the content of a file.
    var svg: String { drawing.text(height: top + 16) }

    /// Returns the rows of a panel.
    ///
    /// - Parameter estimate: returns the estimate of the panel's metric for a variation.
    private func rows(_ estimate: (ExperimentResults.VariationResult) -> ExperimentResults.Estimate?) -> [Row] {
        let compared = results.variations.compactMap { result in
            estimate(result)?.comparison.map { (name: result.name, comparison: $0) }
        }
        // All rows of a panel must have the same unit.
        let areLifts = compared.allSatisfy { $0.comparison.numbers.sequentialLiftInterval != nil }
        return compared.compactMap { name, comparison in
            let numbers = comparison.numbers
            let interval = areLifts ? numbers.liftInterval : numbers.differenceInterval
            guard let interval, let estimate = areLifts ? numbers.lift : numbers.difference else { return nil }
            return Row(
                name: name, comparison: comparison, isLift: areLifts, estimate: estimate, interval: interval,
                sequential: areLifts ? numbers.sequentialLiftInterval : numbers.sequentialDifferenceInterval)
        }
    }

    // MARK: Heading and warnings

    private mutating func addHeading() {
        drawing.text(
            "\(results.experiment.key): lift of '\(results.subject)' over \(results.baseline?.name ?? "")",
            x: Self.margin, y: 36, size: 18, Self.ink, weight: "600")
        var users = "Users: "
        users += results.variations.map { "\($0.name) \($0.tally.counted)" }.joined(separator: " · ")
        if results.multipleVariations + results.chosen > 0 {
            users += " · left out: \(results.multipleVariations) in several variations, \(results.chosen) forced"
        }
        drawing.text(users, x: Self.margin, y: 58, size: 12, Self.faint)
        addLegend()
        top = 96
    }

    /// Explains the two kinds of intervals.
    private mutating func addLegend() {
        let percent = NumberText.decimal(results.query.confidence * 100, places: 2, trimmed: true)
        drawing.line(x: Self.margin, y: 78, toX: 48, toY: 78, Self.undecided, width: 6)
        drawing.text("\(percent)% interval of a single analysis", x: 56, y: 82, size: 12, Self.faint)
        drawing.line(x: 268, y: 78, toX: 292, toY: 78, Self.undecided, width: 1.5)
        drawing.text("\(percent)% interval, valid at every interim look", x: 300, y: 82, size: 12, Self.faint)
    }

    private mutating func addVerdict() {
        drawing.text(
            "Verdict: \(verdict.decision.rawValue)", x: Self.margin, y: top + 12, size: 14, Self.ink, weight: "600")
        top += 16
        for reason in verdict.reasons { addLines("", reason, Self.ink) }
        top += 8
    }

    private mutating func addWarnings() {
        let warnings = results.warnings.map(\.message).filter { !verdict.reasons.contains($0) }
        for warning in warnings { addLines("⚠ ", warning, Self.worse) }
        if !warnings.isEmpty { top += 8 }
    }

    /// Adds a text that is broken into lines.
    ///
    /// - Parameter mark: the start of the first line.
    private mutating func addLines(_ mark: String, _ text: String, _ color: String) {
        // About 128 characters of this size fit into the width of the drawing.
        for (index, line) in Self.wrapped(text, width: 128).enumerated() {
            drawing.text((index == 0 ? mark : "   ") + line, x: Self.margin, y: top + 20, size: 12, color)
            top += 17
        }
    }

    /// Breaks a text into lines of at most `width` characters. A longer word has a line of its own.
    private static func wrapped(_ text: String, width: Int) -> [String] {
        var lines: [String] = []
        for word in text.split(separator: " ") {
            if let last = lines.last, last.count + 1 + word.count <= width {
                lines[lines.count - 1] = last + " " + word
            } else {
                lines.append(String(word))
            }
        }
        return lines
    }

    // MARK: Panels

    /// Adds the panel of one metric.
    ///
    /// - Parameter baseline: the mean of the baseline, which the title shows.
    private mutating func addPanel(_ title: String, baseline: Double?, _ rows: [Row]) {
        let unit = results.measured?.definition.unit ?? ""
        top += 28
        drawing.text(title, x: Self.margin, y: top, size: 14, Self.ink, weight: "600")
        if let baseline {
            drawing.text(
                "baseline \(NumberText.amount(baseline, in: unit))", x: Self.plot.lowerBound, y: top, size: 12,
                Self.faint)
        }
        guard !rows.isEmpty else {
            drawing.text("nothing to compare yet", x: Self.margin, y: top + 24, size: 12, Self.faint)
            top += 36
            return
        }
        let scale = ChartScale(
            covering: rows.map(\.interval) + rows.compactMap(\.sequential) + [0...0], onto: Self.plot)
        let start = top + 10
        let end = top + 14 + Double(rows.count) * Self.rowHeight
        for tick in scale.ticks {
            let x = scale.position(tick)
            let isZero = tick == 0
            drawing.line(x: x, y: start, toX: x, toY: end, isZero ? Self.ink : "#e4e7eb", width: isZero ? 1.5 : 1)
            drawing.text(
                scale.label(tick, isShare: rows.allSatisfy(\.isLift)), x: x, y: end + 16, size: 11, Self.faint,
                anchor: "middle")
        }
        for (index, row) in rows.enumerated() {
            add(row, scale, y: start + (Double(index) + 0.5) * Self.rowHeight)
        }
        top = end + 28
    }

    /// Adds a row at a height: the name, the intervals, the estimate, and the numbers.
    private mutating func add(_ row: Row, _ scale: ChartScale, y: Double) {
        let color = color(of: row)
        drawing.text(row.name, x: Self.plot.lowerBound - 14, y: y + 4, size: 13, Self.ink, anchor: "end", limit: 26)
        if let sequential = row.sequential {
            let low = scale.position(sequential.lowerBound)
            let high = scale.position(sequential.upperBound)
            drawing.line(x: low, y: y, toX: high, toY: y, color, width: 1.5)
            for x in [low, high] { drawing.line(x: x, y: y - 5, toX: x, toY: y + 5, color, width: 1.5) }
        }
        drawing.line(
            x: scale.position(row.interval.lowerBound), y: y, toX: scale.position(row.interval.upperBound), toY: y,
            color, width: 6)
        drawing.circle(x: scale.position(row.estimate), y: y, radius: 5, color)
        let right = Self.plot.upperBound + 20
        let unit = results.measured?.definition.unit ?? ""
        func text(_ number: Double) -> String {
            row.isLift
                ? NumberText.percent(number) : NumberText.sign(of: number) + NumberText.amount(abs(number), in: unit)
        }
        let interval = "\(text(row.interval.lowerBound)) to \(text(row.interval.upperBound))"
        drawing.text("\(text(row.estimate))  (\(interval))", x: right, y: y - 2, size: 13, Self.ink)
        let note = row.isLift ? "" : "; difference, because the lift is not bounded"
        drawing.text(
            "p \(ExperimentResults.short(row.comparison.numbers.sequentialPValue)) at every interim look\(note)",
            x: right, y: y + 14, size: 11, Self.faint)
    }

    /// Returns the color of a row. Only an interval that is valid at every interim look gets the color of a conclusion.
    private func color(of row: Row) -> String {
        guard let interval = row.sequential else { return Self.undecided }
        let wantsLess = results.measured?.definition.direction == .decrease
        if interval.lowerBound > 0 { return wantsLess ? Self.worse : Self.better }
        if interval.upperBound < 0 { return wantsLess ? Self.better : Self.worse }
        return Self.undecided
    }
}

import Bucketing
import Definitions
import Glibc
import HoldfastCore
import Storage

/// Draws results as SVG: for each metric, the lift of each variation over the baseline, with its intervals.
struct ResultsChart {
    private struct Row {
        var name: String
        var comparison: ResultsComparison
        /// Whether the numbers are lifts. If the lift of any row is not bounded, they are differences.
        var isLift: Bool
        var estimate: Double
        var interval: ClosedRange<Double>
        var sequential: ClosedRange<Double>?
    }

    private let results: ExperimentResults
    private let verdict: Verdict
    private var drawing = SVGDrawing(width: 960)
    private var top = 0.0

    private static let plot = 220.0...640.0
    private static let rowHeight = 44.0
    private static let ink = "#1f2933"
    private static let faint = "#7b8794"
    private static let better = "#0b7a4b"
    private static let worse = "#b42318"
    private static let open = "#475569"

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

    var svg: String { drawing.text(height: top + 16) }

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
            "\(results.experiment.key): lift of '\(results.subject)' over \(results.baseline?.name ?? "")", x: 24,
            y: 36, size: 18, Self.ink, weight: "600")
        let users = results.variations.map { "\($0.name) \($0.tally.counted)" }.joined(separator: " · ")
        let leftOut = results.multipleVariations + results.chosen
        drawing.text(
            "Users: \(users)"
                + (leftOut > 0
                    ? " · left out: \(results.multipleVariations) in several variations, \(results.chosen) forced"
                    : ""),
            x: 24, y: 58, size: 12, Self.faint)
        let percent = Self.decimal(results.query.confidence * 100, places: 2, trimmed: true)
        drawing.line(x: 24, y: 78, toX: 48, toY: 78, Self.open, width: 6)
        drawing.text("\(percent)% interval of a single analysis", x: 56, y: 82, size: 12, Self.faint)
        drawing.line(x: 268, y: 78, toX: 292, toY: 78, Self.open, width: 1.5)
        drawing.text("\(percent)% interval, valid at every interim look", x: 300, y: 82, size: 12, Self.faint)
        top = 96
    }

    private mutating func addVerdict() {
        drawing.text("Verdict: \(verdict.decision.rawValue)", x: 24, y: top + 12, size: 14, Self.ink, weight: "600")
        top += 16
        for reason in verdict.reasons { addLines("", reason, Self.ink) }
        top += 8
    }

    private mutating func addWarnings() {
        let warnings = results.warnings.map(\.message).filter { !verdict.reasons.contains($0) }
        for warning in warnings { addLines("⚠ ", warning, Self.worse) }
        if !warnings.isEmpty { top += 8 }
    }

    private mutating func addLines(_ mark: String, _ text: String, _ color: String) {
        for (index, line) in Self.wrapped(text, width: 128).enumerated() {
            drawing.text((index == 0 ? mark : "   ") + line, x: 24, y: top + 20, size: 12, color)
            top += 17
        }
    }

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

    private mutating func addPanel(_ title: String, baseline: Double?, _ rows: [Row]) {
        let unit = results.measured?.definition.unit ?? ""
        top += 28
        drawing.text(title, x: 24, y: top, size: 14, Self.ink, weight: "600")
        if let baseline {
            drawing.text(
                "baseline \(Self.amount(baseline, in: unit))", x: Self.plot.lowerBound, y: top, size: 12, Self.faint)
        }
        guard !rows.isEmpty else {
            drawing.text("nothing to compare yet", x: 24, y: top + 24, size: 12, Self.faint)
            top += 36
            return
        }
        let scale = ChartScale(
            covering: rows.map(\.interval) + rows.compactMap(\.sequential) + [0...0], onto: Self.plot)
        let (start, end) = (top + 10, top + 14 + Double(rows.count) * Self.rowHeight)
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

    private mutating func add(_ row: Row, _ scale: ChartScale, y: Double) {
        // Only always-valid intervals get the color of a conclusion.
        let isGreater = row.sequential.map { $0.lowerBound > 0 } ?? false
        let isLess = row.sequential.map { $0.upperBound < 0 } ?? false
        let wantsLess = results.measured?.definition.direction == .decrease
        let (isBetter, isWorse) = wantsLess ? (isLess, isGreater) : (isGreater, isLess)
        let color = isBetter ? Self.better : isWorse ? Self.worse : Self.open
        drawing.text(row.name, x: Self.plot.lowerBound - 14, y: y + 4, size: 13, Self.ink, anchor: "end", limit: 26)
        if let sequential = row.sequential {
            let (low, high) = (scale.position(sequential.lowerBound), scale.position(sequential.upperBound))
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
                ? Self.percent(number) : (number > 0 ? "+" : number < 0 ? "−" : "") + Self.amount(abs(number), in: unit)
        }
        let interval = "\(text(row.interval.lowerBound)) to \(text(row.interval.upperBound))"
        drawing.text("\(text(row.estimate))  (\(interval))", x: right, y: y - 2, size: 13, Self.ink)
        let note = row.isLift ? "" : "; difference, because the lift is not bounded"
        drawing.text(
            "p \(ExperimentResults.short(row.comparison.numbers.sequentialPValue)) at every interim look\(note)",
            x: right,
            y: y + 14, size: 11, Self.faint)
    }

    // MARK: Numbers

    static func percent(_ share: Double) -> String {
        (share > 0 ? "+" : share < 0 ? "−" : "") + decimal(abs(share) * 100, places: 1) + "%"
    }

    static func decimal(_ number: Double, places: Int, trimmed: Bool = false) -> String {
        let scale = pow(10, Double(places))
        guard number.isFinite, abs(number) * scale < 1e15 else { return number.description }
        let scaled = Int64((abs(number) * scale).rounded())
        let digits = String(scaled % Int64(scale))
        var fraction = String(repeating: "0", count: max(0, places - digits.count)) + digits
        if trimmed { while fraction.last == "0" { fraction.removeLast() } }
        let whole = (number < 0 && scaled != 0 ? "-" : "") + String(scaled / Int64(scale))
        return places == 0 || fraction.isEmpty ? whole : whole + "." + fraction
    }

    /// Formats a number with about four significant digits.
    static func significant(_ number: Double) -> String {
        guard number != 0, number.isFinite else { return number == 0 ? "0" : "unknown" }
        return decimal(number, places: min(8, max(0, 3 - Int(floor(log10(abs(number)))))), trimmed: true)
    }

    /// Formats a number with its unit, such as `12.30 EUR`.
    static func amount(_ number: Double, in unit: String) -> String {
        guard !unit.isEmpty else { return significant(number) }
        let isCurrency =
            unit.utf8.count == 3 && unit.utf8.allSatisfy { (UInt8(ascii: "A")...UInt8(ascii: "Z")).contains($0) }
        // Amounts have two decimals, except in currencies whose cents are not used.
        let isMoney = isCurrency && abs(number) >= 1 && abs(number) < 100_000 && !withoutCents.contains(unit)
        return (isMoney ? decimal(number, places: 2) : significant(number)) + "\u{a0}" + unit
    }

    private static let withoutCents: Set<String> = [
        "BIF", "CLP", "DJF", "GNF", "ISK", "JPY", "KMF", "KRW", "PYG", "RWF", "UGX", "VND", "VUV", "XAF", "XOF", "XPF",
    ]
}

/// Maps values to positions on an axis with round ticks. It covers all values that are drawn, up to 1e100 in magnitude.
struct ChartScale {
    private let low: Double
    private let step: Double
    private let count: Int
    private let places: ClosedRange<Double>
    private static let reach = 1e100

    init(covering ranges: [ClosedRange<Double>], onto places: ClosedRange<Double>) {
        let low = max(ranges.map(\.lowerBound).min() ?? 0, -Self.reach)
        let high = max(min(ranges.map(\.upperBound).max() ?? 0, Self.reach), low + 1e-6)
        // Chooses about six steps of 1, 2 or 5 times a power of ten.
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

    /// Formats a tick as a percentage, or as a number.
    func label(_ tick: Double, isShare: Bool) -> String {
        let factor = isShare ? 100.0 : 1
        let decimals = max(0, Int(ceil(-log10(step * factor) - 1e-9)))
        let text = ResultsChart.decimal(abs(tick) * factor, places: decimals) + (isShare ? "%" : "")
        return tick > 0 ? "+" + text : tick < 0 ? "−" + text : text
    }
}

/// Builds a drawing in SVG 1.1.
struct SVGDrawing {
    private let width: Double
    private var elements = ""

    init(width: Double) {
        self.width = width
    }

    mutating func line(x: Double, y: Double, toX: Double, toY: Double, _ color: String, width: Double) {
        elements += """
            <line x1="\(Self.place(x))" y1="\(Self.place(y))" x2="\(Self.place(toX))" y2="\(Self.place(toY))" \
            stroke="\(color)" stroke-width="\(width)"/>

            """
    }

    mutating func circle(x: Double, y: Double, radius: Double, _ color: String) {
        elements += """
            <circle cx="\(Self.place(x))" cy="\(Self.place(y))" r="\(radius)" fill="\(color)" stroke="#ffffff" stroke-width="1.5"/>

            """
    }

    /// - Parameter limit: the maximum number of characters. A longer text is cut off, and its tooltip has the whole
    ///   text.
    mutating func text(
        _ text: String, x: Double, y: Double, size: Int, _ color: String, anchor: String = "start",
        weight: String = "400", limit: Int = 140
    ) {
        let isLong = text.count > limit
        let shown = isLong ? String(text.prefix(limit - 1)) + "…" : text
        elements += """
            <text x="\(Self.place(x))" y="\(Self.place(y))" font-size="\(size)" fill="\(color)" text-anchor="\(anchor)" \
            font-weight="\(weight)" xml:space="preserve">\(isLong ? "<title>\(Self.escaped(text))</title>" : "")\(Self.escaped(shown))</text>

            """
    }

    mutating func polyline(_ points: [(x: Double, y: Double)], _ color: String, width: Double) {
        elements += """
            <polyline points="\(Self.list(points))" fill="none" stroke="\(color)" stroke-width="\(width)"/>

            """
    }

    mutating func polygon(_ points: [(x: Double, y: Double)], _ color: String, opacity: Double) {
        elements += """
            <polygon points="\(Self.list(points))" fill="\(color)" fill-opacity="\(opacity)"/>

            """
    }

    /// Returns the drawing as the content of a file.
    func text(height: Double) -> String {
        """
        <?xml version="1.0" encoding="UTF-8"?>
        <svg xmlns="http://www.w3.org/2000/svg" \(size(height)) font-family="system-ui, 'DejaVu Sans', sans-serif">
        <rect width="100%" height="100%" fill="#ffffff"/>
        \(elements)</svg>

        """
    }

    /// Returns the drawing as an element of an HTML page.
    func element(height: Double, label: String) -> String {
        """
        <svg role="img" aria-label="\(Self.escaped(label))" \(size(height))>
        \(elements)</svg>
        """
    }

    private func size(_ height: Double) -> String {
        "width=\"\(Self.place(width))\" height=\"\(Self.place(height))\" "
            + "viewBox=\"0 0 \(Self.place(width)) \(Self.place(height))\""
    }

    private static func list(_ points: [(x: Double, y: Double)]) -> String {
        points.map { "\(place($0.x)),\(place($0.y))" }.joined(separator: " ")
    }

    private static func place(_ number: Double) -> String {
        number.isFinite ? "\((number * 10).rounded() / 10)" : "0"
    }

    /// Escapes the characters that XML 1.0 reserves, and drops those that it forbids.
    static func escaped(_ text: String) -> String {
        var result = ""
        for scalar in text.unicodeScalars {
            switch scalar {
            case "&": result += "&amp;"
            case "<": result += "&lt;"
            case ">": result += "&gt;"
            case "\"": result += "&quot;"
            case _ where scalar.value < 0x20 || scalar.value == 0xFFFE || scalar.value == 0xFFFF: continue
            default: result.unicodeScalars.append(scalar)
            }
        }
        return result
    }
}

import Glibc

/// Maps values to positions on an axis with round ticks. It covers all values that are drawn, up to 1e100 in magnitude.
struct ChartScale {
    /// The first tick as a multiple of ``step``.
    private let firstTick: Double
    private let step: Double
    /// The number of steps.
    private let count: Int
    private let places: ClosedRange<Double>
    /// The greatest magnitude that is covered.
    private static let reach = 1e100

    /// - Parameters:
    ///   - ranges: the ranges of the values to draw.
    ///   - places: the positions of the ends of the axis.
    init(covering ranges: [ClosedRange<Double>], onto places: ClosedRange<Double>) {
        let low = max(ranges.map(\.lowerBound).min() ?? 0, -Self.reach)
        let high = max(min(ranges.map(\.upperBound).max() ?? 0, Self.reach), low + 1e-6)
        // Chooses about six steps of 1, 2 or 5 times a power of ten.
        let rough = (high - low) / 6
        let power = pow(10, floor(log10(rough)))
        step = ([1, 2, 5, 10].first { $0 * power >= rough } ?? 10) * power
        firstTick = floor(low / step)
        count = Int(min(20, ceil(high / step) - firstTick))
        self.places = places
    }

    var ticks: [Double] { (0...max(1, count)).map { (firstTick + Double($0)) * step } }

    func position(_ value: Double) -> Double {
        let share = (value / step - firstTick) / Double(max(1, count))
        return places.lowerBound + share * (places.upperBound - places.lowerBound)
    }

    /// Formats a tick with its sign, as a percentage or as a number, with the decimals that ``step`` needs.
    func label(_ tick: Double, isShare: Bool) -> String {
        let factor = isShare ? 100.0 : 1
        // The small term makes up for rounding errors of the logarithm.
        let decimals = max(0, Int(ceil(-log10(step * factor) - 1e-9)))
        let text = ResultsChart.decimal(abs(tick) * factor, places: decimals) + (isShare ? "%" : "")
        return tick > 0 ? "+" + text : tick < 0 ? "−" + text : text
    }
}

/// Builds a drawing in SVG 1.1, from top to bottom: its height is given at the end.
struct SVGDrawing {
    private let width: Double
    /// The elements so far, as XML.
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

    /// Adds a text.
    ///
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

    /// Returns the attributes for the size.
    private func size(_ height: Double) -> String {
        "width=\"\(Self.place(width))\" height=\"\(Self.place(height))\" "
            + "viewBox=\"0 0 \(Self.place(width)) \(Self.place(height))\""
    }

    private static func list(_ points: [(x: Double, y: Double)]) -> String {
        points.map { "\(place($0.x)),\(place($0.y))" }.joined(separator: " ")
    }

    /// Formats a position or a length, with one decimal.
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

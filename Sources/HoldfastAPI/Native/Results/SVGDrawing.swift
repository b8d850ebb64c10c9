/// Builds a drawing in SVG 1.1. Drawings grow from top to bottom, so the height is given at the end.
struct SVGDrawing {
    private let width: Double
    /// The elements so far, as XML.
    private var elements = ""

    init(width: Double) {
        self.width = width
    }

    mutating func line(x: Double, y: Double, toX: Double, toY: Double, _ color: String, width: Double) {
        elements += """
            <line x1="\(Self.number(x))" y1="\(Self.number(y))" x2="\(Self.number(toX))" y2="\(Self.number(toY))" \
            stroke="\(color)" stroke-width="\(width)"/>

            """
    }

    mutating func circle(x: Double, y: Double, radius: Double, _ color: String) {
        elements += """
            <circle cx="\(Self.number(x))" cy="\(Self.number(y))" r="\(radius)" fill="\(color)" stroke="#ffffff" stroke-width="1.5"/>

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
            <text x="\(Self.number(x))" y="\(Self.number(y))" font-size="\(size)" fill="\(color)" text-anchor="\(anchor)" \
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
        "width=\"\(Self.number(width))\" height=\"\(Self.number(height))\" "
            + "viewBox=\"0 0 \(Self.number(width)) \(Self.number(height))\""
    }

    private static func list(_ points: [(x: Double, y: Double)]) -> String {
        points.map { "\(number($0.x)),\(number($0.y))" }.joined(separator: " ")
    }

    /// Formats a position or a length, with one decimal.
    private static func number(_ number: Double) -> String {
        number.isFinite ? "\((number * 10).rounded() / 10)" : "0"
    }

    /// Escapes the characters that XML 1.0 reserves, and drops the characters that it forbids.
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

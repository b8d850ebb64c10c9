/// A drawing in SVG 1.1, from top to bottom.
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

    /// - Parameter limit: characters; what is longer is cut, and whole only as the title.
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

    func text(height: Double) -> String {
        """
        <?xml version="1.0" encoding="UTF-8"?>
        <svg xmlns="http://www.w3.org/2000/svg" width="\(Self.place(width))" height="\(Self.place(height))" \
        viewBox="0 0 \(Self.place(width)) \(Self.place(height))" font-family="system-ui, 'DejaVu Sans', sans-serif">
        <rect width="100%" height="100%" fill="#ffffff"/>
        \(elements)</svg>

        """
    }

    private static func place(_ number: Double) -> String {
        number.isFinite ? "\((number * 10).rounded() / 10)" : "0"
    }

    /// What XML 1.0 gives a meaning is escaped; what it forbids is left out.
    private static func escaped(_ text: String) -> String {
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

import Bucketing
import Chronology
import Definitions
import HoldfastCore
import JSON
import Storage

/// The sections of a report with numbers: the metrics, the lift over time, the users, and the origin of the report.
extension ExperimentReport {
    // MARK: Numbers

    /// Adds a table with a group for each metric and a row for each of its variations. All intervals are drawn on one
    /// scale.
    mutating func addMetrics() {
        let rows = metrics.flatMap(\.rows)
        html += "<h2>What was found</h2>\n"
        guard !rows.isEmpty else {
            html += "<p class=\"soft\">There is nothing to compare yet.</p>\n"
            return
        }
        let intervals = rows.compactMap(\.effect?.liftInterval)
        let margins = metrics.compactMap { metric in metric.margin.map { $0...$0 } }
        // The drawing of a row is 200 wide. At both ends there is room for half of a circle with the radius 4.
        let scale = ChartScale(covering: intervals + margins + [0...0], onto: 4...196)
        let percent = Self.decimal(results.query.confidence * 100)
        html += """
            <table class="numbers">
            <thead><tr><th scope="col">Metric</th><th scope="col">Value</th><th scope="col">Lift</th>\
            <th scope="col">\(percent)% interval, valid at every interim look</th><th scope="col">p</th><th scope="col">Outcome</th>\
            <th scope="col">Users</th></tr></thead>

            """
        let names = ["primary": "Decides", "guardrail": "Must not suffer", "secondary": "Explains"]
        for metric in metrics {
            html += "<tbody><tr><th class=\"group\" colspan=\"7\" scope=\"rowgroup\">\(Self.escaped(metric.name)) "
            html += "<span class=\"soft\">\(names[metric.role] ?? "")\(metric.isDecrease ? "; less is better" : "")"
            html += "</span></th></tr>\n"
            for row in metric.rows { html += tableRow(row, of: metric, scale) }
            html += "</tbody>\n"
        }
        html += "</table>\n"
    }

    /// Returns the row of the table for a variation.
    private func tableRow(_ row: Row, of metric: Metric, _ scale: ChartScale) -> String {
        func value(_ number: Double?) -> String {
            guard let number else { return "–" }
            return metric.isShare
                ? Self.decimal(number * 100) + "%" : Self.escaped(NumberText.amount(number, in: metric.unit))
        }
        let lift = row.effect?.lift
        let interval = row.effect?.liftInterval
        // The class of the style sheet, which determines the color.
        let tone =
            ["better": "good", "worse": "bad", "beyond margin": "bad"][row.outcome] ?? ""
        let drawn =
            if let lift, let interval {
                Self.drawn(interval, lift, tone, metric.margin, scale)
                    + "<br>\(NumberText.percent(interval.lowerBound)) to \(NumberText.percent(interval.upperBound))"
            } else {
                Self.escaped(row.effect.map { "\($0)" } ?? "–")
            }
        let pValue = row.pValue.map { ExperimentResults.short($0).replacing("= ", with: "") } ?? "–"
        return """
            <tr><th scope="row">\(Self.escaped(row.variation))</th><td>\(value(row.mean))<br><span class="soft">baseline \
            \(value(row.baseline))</span></td><td class="\(tone)">\(lift.map(NumberText.percent) ?? "–")</td><td>\(drawn)</td>\
            <td>\(Self.escaped(pValue))</td><td>\(Self.escaped(row.outcome))</td><td>\(row.users)</td></tr>

            """
    }

    /// Draws a lift with its interval, and with the margin of a guardrail.
    ///
    /// - Parameter tone: the class of the style sheet, which determines the color.
    private static func drawn(
        _ interval: ClosedRange<Double>, _ lift: Double, _ tone: String, _ margin: Double?, _ scale: ChartScale
    ) -> String {
        let color = ["good": "#2f7d3a", "bad": "#b01f17"][tone] ?? "#5f6b6d"
        var drawing = SVGDrawing(width: 200)
        drawing.line(x: scale.position(0), y: 0, toX: scale.position(0), toY: 20, "#8a8f8c", width: 1)
        if let margin {
            drawing.line(x: scale.position(margin), y: 0, toX: scale.position(margin), toY: 20, "#b01f17", width: 1)
        }
        let low = scale.position(interval.lowerBound)
        let high = scale.position(interval.upperBound)
        drawing.line(x: low, y: 10, toX: high, toY: 10, color, width: 2)
        for x in [low, high] { drawing.line(x: x, y: 6, toX: x, toY: 14, color, width: 2) }
        drawing.circle(x: scale.position(lift), y: 10, radius: 4, color)
        return drawing.element(height: 20, label: "interval of the lift")
    }

    // MARK: Over time

    /// Adds a chart of the lift by days of enrollment, if there are several days.
    mutating func addSeries() {
        guard let series, let chart = SeriesChart(series) else { return }
        html += "<figure><h2>Lift of \(Self.escaped(series.whole.subject.string)) over time</h2>\n"
        html += "<p class=\"soft\">All users enrolled until each day, with the interval of every interim look.</p>\n"
        html += chart.element + "</figure>\n"
    }

    // MARK: Users and origin

    /// Adds the number of users, and how they are split in each period of the experiment.
    mutating func addUsers() {
        html += "<section><h2>Users</h2>\n<p>\(results.counted) counted"
        let leftOut = [(results.multipleVariations, "in several variations"), (results.chosen, "forced")]
            .filter { $0.0 > 0 }.map { "\($0) \($1)" }
        html += (leftOut.isEmpty ? "" : "; left out: " + leftOut.joined(separator: ", ")) + ".</p>\n"
        let ratio = results.sampleRatio
        let p = ratio.pValue.map { "p \(ExperimentResults.short($0))" } ?? "no users yet"
        html +=
            ratio.isMismatch
            ? "<p class=\"bad\">Sample ratio mismatch, \(Self.escaped(p)): the users are not split as configured.</p>\n"
            : "<p>Sample ratio: as configured (\(Self.escaped(p))).</p>\n"
        for period in ratio.periods {
            let total = Double(period.users.reduce(0, +))
            let rows = zip(results.variations, period.users).enumerated().map { index, entry in
                let (variation, users) = entry
                let expected = period.shares.map { Self.decimal($0[index] * total, places: 1) } ?? "–"
                return
                    "<tr><th scope=\"row\">\(Self.escaped(variation.name))</th><td>\(users)</td><td>\(expected)</td></tr>\n"
            }
            let since = period.since.map { "Since \(Self.time($0.rfc3339))" } ?? "Variation"
            html += """
                <table><thead><tr><th scope="col">\(since)</th><th scope="col">Users</th><th scope="col">Expected</th></tr></thead>
                <tbody>\(rows.joined())</tbody></table>

                """
        }
        html += "</section>\n"
    }

    /// Adds when, by whom and from which definitions the report was made.
    mutating func addEnd() {
        let kept = results.frozenAt.map {
            "These are the results of \(Self.time($0.rfc3339)), the time of the conclusion. "
        }
        let filter = results.query.filter.isEmpty ? "" : "Only some users, or some of what they did, count. "
        let revision = description["revision"]?.string ?? ""
        html += """
            <footer class="soft">\(kept ?? "")\(filter)Made \(Self.time(madeAt.rfc3339)) by \(Self.escaped(author)), from \
            revision \(Self.escaped(revision)) of the project \(Self.escaped(results.sdkKey)). The intervals and p-values hold \
            at every interim look.</footer>

            """
    }
}

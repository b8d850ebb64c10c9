import Bucketing
import Chronology
import Definitions
import HoldfastCore
import Storage

/// Renders results as CSV.
extension ExperimentResults {
    /// The results as CSV (RFC 4180), one line for each variation and metric, or for each day and variation; unknown or
    /// infinite numbers are empty.
    var csv: String {
        if let breakdown { return breakdown.csv }
        let (header, rows) = query.isByDay ? csvByDay : csvByMetric
        return Self.csv(header, rows)
    }

    /// One line for each day and variation.
    private var csvByDay: (header: [String], rows: [[String]]) {
        let header = [
            "experiment_key", "goal", "day", "variation_key", "variation_id", "is_baseline", "users",
            "multiple_variations", "forced", "events", "converted", "value",
        ]
        let rows = days.flatMap { day in
            day.variations.map { tally in
                [
                    experiment.key.string, subject.string, day.date,
                    experiment.variation(id: tally.variationID)?.key.string ?? "", tally.variationID.string,
                    "\(tally.variationID == baseline?.id)", "\(tally.counted)", "\(tally.multipleVariations)",
                    "\(tally.chosen)", "\(tally.goal.events)", "\(tally.goal.converted)",
                    hasValues || measured != nil ? tally.goal.y.value.description : "",
                ]
            }
        }
        return (header, rows)
    }

    /// One line for each variation and metric. Without a defined metric there are the metrics `conversion` and `value`.
    var csvByMetric: (header: [String], rows: [[String]]) {
        let header = [
            "experiment_key", "goal", "variation_key", "variation_id", "is_baseline", "users", "multiple_variations",
            "forced", "events", "converted", "metric", "mean", "standard_deviation", "difference", "difference_low",
            "difference_high", "lift", "lift_low", "lift_high", "p_value", "chance_to_win", "expected_loss",
            "sequential_lift_low", "sequential_lift_high", "sequential_p_value", "cuped_lift", "cuped_lift_low",
            "cuped_lift_high", "cuped_p_value", "sample_ratio_p_value", "smallest_lift", "sequential_difference_low",
            "sequential_difference_high", "sum",
        ]
        let rows = variations.flatMap { result in
            let sum = result.tally.goal.y.value
            if let measured, let estimate = result.metric {
                let isRate = measured.definition.statistic == .rate
                return [row(result, measured.definition.key.string, estimate, sum: isRate ? nil : sum)]
            }
            return [row(result, "conversion", result.conversion, sum: nil)]
                + (result.value.map { [row(result, "value", $0, sum: sum)] } ?? [])
        }
        return (header, rows)
    }

    /// Returns the fields of ``csvByMetric`` for one variation and metric.
    ///
    /// - Parameter sum: the sum over the counted users; `nil` for a rate.
    private func row(
        _ result: VariationResult, _ metric: String, _ estimate: Estimate, sum: Double?
    ) -> [String] {
        let comparison = estimate.comparison
        let numbers = comparison?.numbers
        let adjusted = comparison?.adjusted
        let hasUsers = result.tally.counted > 0
        let fields: [Double?] = [
            hasUsers ? estimate.mean : nil, hasUsers ? estimate.standardDeviation : nil, numbers?.difference,
            numbers?.differenceInterval?.lowerBound, numbers?.differenceInterval?.upperBound, numbers?.lift,
            numbers?.liftInterval?.lowerBound, numbers?.liftInterval?.upperBound, numbers?.pValue,
            comparison?.chanceToWin, comparison?.expectedLoss, numbers?.sequentialLiftInterval?.lowerBound,
            numbers?.sequentialLiftInterval?.upperBound, numbers?.sequentialPValue, adjusted?.lift,
            adjusted?.liftInterval?.lowerBound, adjusted?.liftInterval?.upperBound, adjusted?.pValue,
            sampleRatio.pValue, estimate.power?.smallestLift, numbers?.sequentialDifferenceInterval?.lowerBound,
            numbers?.sequentialDifferenceInterval?.upperBound, sum,
        ]
        let tally = result.tally
        return [
            experiment.key.string, subject.string, result.key.string, result.id.string, "\(result.isBaseline)",
            "\(tally.counted)", "\(tally.multipleVariations)", "\(tally.chosen)", "\(tally.goal.events)",
            "\(tally.goal.converted)", metric,
        ] + fields.map(Self.cell)
    }

    /// Joins a header and rows to a text.
    static func csv(_ header: [String], _ rows: [[String]]) -> String {
        ([header] + rows).map { $0.map(quoted).joined(separator: ",") + "\r\n" }.joined()
    }

    /// Returns the text of a number in CSV; empty if it is unknown or infinite.
    static func cell(_ number: Double?) -> String { number.flatMap { $0.isFinite ? $0.description : nil } ?? "" }

    /// Returns a text as a CSV field. A text that a spreadsheet would evaluate as a formula gets an apostrophe, because
    /// any caller who may name a goal could inject one.
    private static func quoted(_ text: String) -> String {
        let isFormula = text.utf8.first.map { "=+-@\t\r\n".utf8.contains($0) } ?? false
        // `Double` also reads `-inf` and `+0x1p3`.
        let isNumber = text.utf8.allSatisfy { "0123456789+-.e".utf8.contains($0) } && Double(text) != nil
        let field = isFormula && !isNumber ? "'" + text : text
        guard field.utf8.contains(where: { "\",\r\n".utf8.contains($0) }) else { return field }
        return "\"" + field.replacing("\"", with: "\"\"") + "\""
    }
}

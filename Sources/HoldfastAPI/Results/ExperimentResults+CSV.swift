import Bucketing
import Storage

extension ExperimentResults {
    /// A line for each variation and metric (RFC 4180); what is not known, or no number, is empty.
    var csv: String {
        let header = [
            "experiment_key", "goal", "variation_key", "variation_id", "is_baseline", "users", "crossed", "forced",
            "events", "converted", "metric", "mean", "standard_deviation", "difference", "difference_low",
            "difference_high", "lift", "lift_low", "lift_high", "p_value", "chance_to_win", "expected_loss",
            "sequential_lift_low", "sequential_lift_high", "sequential_p_value", "cuped_lift", "cuped_lift_low",
            "cuped_lift_high", "cuped_p_value", "sample_ratio_p_value",
        ]
        let rows = arms.flatMap { arm in
            [row(arm, "conversion", arm.conversion)] + (arm.value.map { [row(arm, "value", $0)] } ?? [])
        }
        return ([header] + rows).map { $0.map(Self.quoted).joined(separator: ",") + "\r\n" }.joined()
    }

    private func row(_ arm: Arm, _ metric: String, _ figures: Figures) -> [String] {
        let comparison = figures.comparison
        let numbers: [Double?] = [
            figures.mean, figures.standardDeviation, comparison?.difference,
            comparison?.differenceInterval.lowerBound, comparison?.differenceInterval.upperBound, comparison?.lift,
            comparison?.liftInterval?.lowerBound, comparison?.liftInterval?.upperBound, comparison?.pValue,
            comparison?.chanceToWin, comparison?.expectedLoss, comparison?.sequentialLiftInterval?.lowerBound,
            comparison?.sequentialLiftInterval?.upperBound, comparison?.sequentialPValue, comparison?.adjusted?.lift,
            comparison?.adjusted?.liftInterval?.lowerBound, comparison?.adjusted?.liftInterval?.upperBound,
            comparison?.adjusted?.pValue, sampleRatioPValue,
        ]
        let tally = arm.tally
        return [
            experiment.key.string, query.goal.string, arm.key?.string ?? "", arm.id.string, "\(arm.isBaseline)",
            "\(tally.counted)", "\(tally.crossed)", "\(tally.forced)", "\(tally.goal.events)", "\(tally.goal.converted)",
            metric,
        ] + numbers.map { $0.flatMap { $0.isFinite ? $0.description : nil } ?? "" }
    }

    private static func quoted(_ field: String) -> String {
        guard field.utf8.contains(where: { "\",\r\n".utf8.contains($0) }) else { return field }
        return "\"" + field.replacing("\"", with: "\"\"") + "\""
    }
}

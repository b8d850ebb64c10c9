import Bucketing
import Chronology
import HoldfastCore
import JSON
import Storage

/// Renders the results of each day of enrollment as JSON and CSV.
extension ResultsSeries {
    var json: JSONValue {
        var object = JSONObject()
        object["experiment_id"] = .string(whole.experiment.id.string)
        object["experiment_key"] = .string(whole.experiment.key.string)
        object["sdk_key"] = .string(whole.sdkKey)
        object[whole.measured == nil ? "goal" : "metric"] = .string(whole.subject.string)
        object["baseline"] = .string(whole.baseline?.name ?? "")
        object["confidence"] = .number(whole.query.confidence)
        if let frozenAt = whole.frozenAt { object["frozen_at"] = .string(frozenAt.rfc3339) }
        if let filter = whole.query.filter.json { object["filter"] = filter }
        object["days"] = .array(
            days.map { day, results in
                [
                    "day": .string(Instant(day: day).date),
                    "variations": .array(
                        results.variations.map { variation in
                            var point = JSONObject()
                            point["variation_id"] = .string(variation.id.string)
                            point["variation_key"] = .string(variation.key.string)
                            for (name, count) in Self.counts(of: variation) { point[name] = .integer(Int64(count)) }
                            for (name, number) in results.numbers(of: variation) {
                                point[name] = PlanResults.json(number)
                            }
                            return .object(point)
                        }),
                ]
            })
        return .object(object)
    }

    var csv: String {
        let names =
            whole.variations.first.map { Self.counts(of: $0).map(\.name) + whole.numbers(of: $0).map(\.name) } ?? []
        let rows = days.flatMap { day, results in
            results.variations.map { variation in
                [
                    whole.experiment.key.string, whole.subject.string, Instant(day: day).date,
                    variation.key.string, variation.id.string, "\(variation.isBaseline)",
                ] + Self.counts(of: variation).map { "\($0.count)" }
                    + results.numbers(of: variation).map { ExperimentResults.cell($0.number) }
            }
        }
        return ExperimentResults.csv(
            ["experiment_key", "goal", "day", "variation_key", "variation_id", "is_baseline"] + names, rows)
    }

    /// Returns the numbers of users, by the names of JSON members and CSV columns.
    private static func counts(of variation: ExperimentResults.VariationResult) -> [(name: String, count: Int)] {
        [("users", variation.tally.counted), ("converted", variation.tally.goal.converted)]
    }
}

extension ExperimentResults {
    /// Returns the numbers on which the verdict about a variation is based, by the names of JSON members and CSV
    /// columns. They are adjusted by CUPED if the metric requires it, and valid at every interim look (sequential).
    fileprivate func numbers(of variation: VariationResult) -> [(name: String, number: Double?)] {
        let estimate = variation.tally.counted > 0 ? estimate(of: variation) : nil
        let comparison = estimate?.comparison
        let adjusted = comparison?.isDecidedAdjusted == true ? comparison?.adjusted : nil
        let numbers = adjusted ?? comparison?.numbers
        return [
            ("mean", estimate?.mean), ("difference", numbers?.difference),
            ("difference_low", numbers?.sequentialDifferenceInterval?.lowerBound),
            ("difference_high", numbers?.sequentialDifferenceInterval?.upperBound), ("lift", numbers?.lift),
            ("lift_low", numbers?.sequentialLiftInterval?.lowerBound),
            ("lift_high", numbers?.sequentialLiftInterval?.upperBound), ("p_value", numbers?.sequentialPValue),
        ]
    }
}

extension ResultsFilter {
    /// The filter as a response shows it; `nil` if it excludes no users and no events.
    var json: JSONValue? {
        guard !isEmpty else { return nil }
        return [
            "attribute": attributeName.map { .string($0.string) } ?? .null,
            "value": attributeValue.map { .string($0.string) } ?? .null,
            "segment": segment.map { .string($0.string) } ?? .null, "days": days.map { .shortest($0) } ?? .null,
            "window": countsWholeTimes ? "ended" : .null,
        ]
    }
}

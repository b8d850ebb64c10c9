import Bucketing
import Chronology
import HoldfastCore
import JSON
import Storage

/// Renders results as JSON and CSV, with one group of users for each value of an attribute.
extension BreakdownResults {
    var json: JSONValue {
        [
            "attribute": .string(attribute.string), "exploratory": true,
            "users_without_group": .integer(Int64(usersWithoutGroup)),
            "counts_since": countsSince.map { .string($0.rfc3339) } ?? .null, "groups": .array(groups.map(\.json)),
        ]
    }

    /// The results as CSV, one line for each group, variation and metric. The numbers from the column `outcome` on are
    /// valid at every interim look, and corrected for the number of comparisons.
    var csv: String {
        let header = groups.first?.results.csvByMetric.header ?? []
        let rows = groups.flatMap { group in
            group.results.csvByMetric.rows.map { row in
                [attribute.string, group.name.kind, group.name.value ?? ""] + row + group.corrected(row, header)
            }
        }
        return ExperimentResults.csv(
            ["breakdown", "group", "value"] + header
                + ["outcome", "corrected_p_value", "corrected_lift_low", "corrected_lift_high"], rows)
    }
}

extension BreakdownResults.Name {
    fileprivate var kind: String {
        switch self {
        case .none: "none"
        case .value: "value"
        case .other: "other"
        }
    }

    fileprivate var value: String? { if case .value(let value) = self { value.string } else { nil } }
}

extension BreakdownResults.Group {
    fileprivate var json: JSONValue {
        [
            "group": .string(name.kind), "value": name.value.map { .string($0) } ?? .null,
            "users": .integer(Int64(results.counted)),
            "variations": .array(zip(results.variations, findings).map { results.json($0, $1) }),
            "warnings": .array(results.specificWarnings.map(\.json)),
        ]
    }

    /// Returns the outcome and the corrected numbers for a line of ``BreakdownResults/csv``. They are empty for the
    /// baseline, and for a metric that the query does not compare.
    fileprivate func corrected(_ row: [String], _ header: [String]) -> [String] {
        func field(_ column: String) -> String? { header.firstIndex(of: column).map { row[$0] } }
        let index = results.variations.firstIndex { $0.id.string == field("variation_id") }
        let isCompared = results.measured != nil || field("metric") == results.query.metric.rawValue
        guard isCompared, let index, let finding = findings[index] else { return ["", "", "", ""] }
        let numbers = [
            finding.pValue, finding.effect?.liftInterval?.lowerBound, finding.effect?.liftInterval?.upperBound,
        ]
        return [finding.outcome.rawValue] + numbers.map(ExperimentResults.cell)
    }
}

import Bucketing
import Chronology
import Definitions
import HoldfastCore
import JSON
import Storage

extension ExperimentResults {
    var json: [UInt8] {
        var writer = JSONWriter()
        writer.beginObject()
        writer.member("experiment_id", experiment.id.string)
        writer.member("experiment_key", experiment.key.string)
        writer.member("sdk_key", sdkKey)
        if let goal = query.goal { writer.member("goal", goal.string) }
        if let measured { write(measured, to: &writer) }
        writer.member("baseline", baseline?.name ?? "")
        writer.member("confidence", query.confidence)
        if let frozenAt { writer.member("frozen_at", frozenAt.rfc3339) }
        if let days = query.enrolledOn {
            writer.member("enrolled_from", days.lowerBound == .min ? nil : Instant(day: days.lowerBound).date)
            writer.member("enrolled_to", days.upperBound == .max ? nil : Instant(day: days.upperBound).date)
        }
        if let filter = query.filter.json {
            writer.key("filter")
            writer.raw(filter.encoded())
            if measured == nil { writer.member("enrolled_until", enrolledUntil.map { Instant(day: $0).date }) }
        }
        writer.key("users")
        writer.beginObject()
        writer.member("counted", counted)
        writer.member("multiple_variations", multipleVariations)
        writer.member("forced", chosen)
        writer.member("excluded_users", excludedUsers)
        writer.endObject()
        if notRunning > 0 { writer.member("not_running_exposures", notRunning) }
        writeVerdict(to: &writer)
        writeSampleRatio(to: &writer)
        writePower(to: &writer)
        writeControlCheck(to: &writer)
        if let adaptive {
            writer.key("bandit")
            writer.beginObject()
            writer.member("weighted", measured?.definition.statistic != .ratio)
            writer.member("users", adaptive.users)
            writer.member("users_without_probability", adaptive.usersWithoutProbability)
            writer.endObject()
        }
        writer.key("variations")
        writer.beginArray()
        for result in variations { write(result, to: &writer) }
        writer.endArray()
        writer.key("removed_variations")
        writer.beginArray()
        for removed in removedVariations { write(removed, to: &writer) }
        writer.endArray()
        if query.isByDay { writeDays(to: &writer) }
        if let breakdown {
            writer.key("breakdown")
            writer.raw(breakdown.json.encoded())
        }
        writer.key("warnings")
        writer.beginArray()
        for warning in warnings {
            writer.beginObject()
            writer.member("code", warning.code.rawValue)
            writer.member("message", warning.message)
            writer.endObject()
        }
        writer.endArray()
        writer.endObject()
        return writer.finish()
    }

    private func writeControlCheck(to writer: inout JSONWriter) {
        writer.key("control_check")
        guard let controlCheck else { return writer.null() }
        writer.beginObject()
        writer.member("conversion_p_value", controlCheck.conversionPValue)
        writer.member("value_p_value", controlCheck.valuePValue)
        writer.member("differs", controlCheck.isSuspicious)
        writer.endObject()
    }

    private func writeVerdict(to writer: inout JSONWriter) {
        let verdict = verdict
        writer.key("verdict")
        writer.beginObject()
        writer.member("decision", verdict.decision.rawValue)
        writer.member("metric", judged)
        writer.member("winner", verdict.winner.map { variations[$0].name })
        writer.key("reasons")
        writer.beginArray()
        for reason in verdict.reasons { writer.string(reason) }
        writer.endArray()
        writer.key("variations")
        writer.beginArray()
        for finding in verdict.findings {
            writer.beginObject()
            writer.member("variation_id", variations[finding.variation].id.string)
            writer.member("variation_key", variations[finding.variation].name)
            writer.member("outcome", finding.outcome.rawValue)
            writer.member("difference", finding.effect?.difference)
            writer.member("difference_interval", finding.effect?.differenceInterval)
            writer.member("lift", finding.effect?.lift)
            writer.member("lift_interval", finding.effect?.liftInterval)
            writer.member("p_value", finding.pValue)
            writer.endObject()
        }
        writer.endArray()
        writer.endObject()
    }

    private func writeSampleRatio(to writer: inout JSONWriter) {
        writer.key("sample_ratio")
        writer.beginObject()
        writer.member("p_value", sampleRatio.pValue)
        writer.member("mismatch", sampleRatio.isMismatch)
        writer.key("periods")
        writer.beginArray()
        for period in sampleRatio.periods {
            writer.beginObject()
            writer.member("since", period.since?.rfc3339)
            writer.member("p_value", period.pValue)
            writer.key("variations")
            writer.beginArray()
            for (index, result) in variations.enumerated() {
                writer.beginObject()
                writer.member("variation_id", result.id.string)
                writer.member("variation_key", result.key.string)
                writer.member("users", period.users[index])
                writer.member("expected_share", period.shares.map { Self.percentage($0[index]) })
                writer.endObject()
            }
            writer.endArray()
            writer.endObject()
        }
        writer.endArray()
        writer.endObject()
    }

    private func writePower(to writer: inout JSONWriter) {
        writer.key("power")
        writer.beginObject()
        writer.member("users_per_day", enrollment.usersPerDay)
        writer.member("days_counted", enrollment.days)
        writer.member("mde", query.effect)
        writer.endObject()
    }

    private func write(_ removed: RemovedVariation, to writer: inout JSONWriter) {
        writer.beginObject()
        writer.member("variation_id", removed.id.string)
        writer.member("variation_key", removed.key?.string)
        writer.member("users", removed.users.counted)
        writer.member("multiple_variations", removed.users.multipleVariations)
        writer.member("forced", removed.users.chosen)
        writer.endObject()
    }

    private func writeDays(to writer: inout JSONWriter) {
        writer.key("days")
        writer.beginArray()
        for day in days where !day.variations.isEmpty {
            writer.beginObject()
            writer.member("day", day.date)
            writer.key("variations")
            writer.beginArray()
            for tally in day.variations {
                writer.beginObject()
                writer.member("variation_id", tally.variationID.string)
                writer.member("variation_key", experiment.variation(id: tally.variationID)?.key.string)
                writer.member("users", tally.counted)
                writer.member("multiple_variations", tally.multipleVariations)
                writer.member("forced", tally.chosen)
                writer.member("events", tally.goal.events)
                writer.member("converted", tally.goal.converted)
                writer.member("value", hasValues || measured != nil ? tally.goal.y.value : nil)
                writer.endObject()
            }
            writer.endArray()
            writer.endObject()
        }
        writer.endArray()
    }

    /// Returns a share as a percentage, rounded so that no binary fraction shows.
    private static func percentage(_ share: Double) -> Double { (share * 1e12).rounded() / 1e10 }

    private func write(_ result: VariationResult, to writer: inout JSONWriter) {
        writer.beginObject()
        writer.member("variation_id", result.id.string)
        writer.member("variation_key", result.key.string)
        writer.member("users", result.tally.counted)
        let share = counted > 0 ? Double(result.tally.counted) / Double(counted) : nil
        writer.member("share", share.map(Self.percentage))
        writer.member("expected_share", result.expectedShare.map(Self.percentage))
        writer.member("multiple_variations", result.tally.multipleVariations)
        writer.member("forced", result.tally.chosen)
        writer.member("events", result.tally.goal.events)
        writer.member("converted", result.tally.goal.converted)
        let hasUsers = result.tally.counted > 0
        if let measured, let estimate = result.metric {
            writer.key("estimate")
            let sum = measured.definition.statistic == .rate ? nil : result.tally.goal.y.value
            write(estimate, measured.definition.statistic.member, sum: sum, hasUsers, to: &writer)
            if !result.steps.isEmpty { write(result.steps, hasUsers, to: &writer) }
            return writer.endObject()
        }
        writer.key("conversion")
        write(result.conversion, "rate", sum: nil, hasUsers, to: &writer)
        writer.key("value")
        if let value = result.value {
            write(value, "mean", sum: result.tally.goal.y.value, hasUsers, to: &writer)
        } else {
            writer.null()
        }
        writer.endObject()
    }

    private func write(_ measured: MeasuredMetric, to writer: inout JSONWriter) {
        writer.key("metric")
        writer.beginObject()
        writer.member("key", measured.definition.key.string)
        writer.member("kind", measured.definition.kind.rawValue)
        writer.member("direction", measured.definition.direction.rawValue)
        if !measured.definition.unit.isEmpty { writer.member("unit", measured.definition.unit) }
        writer.member("filling", measured.isFilling)
        writer.member("counts_since", measured.countsSince?.rfc3339)
        writer.member("enrolled_until", enrolledUntil.map { Instant(day: $0).date })
        writer.endObject()
    }

    private func write(_ steps: [Step], _ hasUsers: Bool, to writer: inout JSONWriter) {
        writer.key("steps")
        writer.beginArray()
        for step in steps {
            writer.beginObject()
            writer.member("goal", step.goal.string)
            writer.member("converted", step.converted)
            writer.member("rate", hasUsers ? step.estimate.mean : nil)
            let numbers = step.estimate.comparison?.numbers
            writer.member("lift", numbers?.lift)
            writer.member("lift_interval", numbers?.liftInterval)
            writer.member("sequential_lift_interval", numbers?.sequentialLiftInterval)
            writer.member("sequential_p_value", numbers?.sequentialPValue)
            writer.endObject()
        }
        writer.endArray()
    }

    /// - Parameter sum: the sum over the counted users; `nil` for a rate.
    private func write(
        _ estimate: Estimate, _ name: StaticString, sum: Double?, _ hasUsers: Bool, to writer: inout JSONWriter
    ) {
        writer.beginObject()
        // The mean of nobody is unknown, not 0.
        let isKnown = hasUsers && estimate.mean.isFinite
        writer.member(name, isKnown ? estimate.mean : nil)
        if let sum { writer.member("sum", sum) }
        writer.member("standard_deviation", isKnown ? estimate.standardDeviation : nil)
        writer.key("comparison")
        if let comparison = estimate.comparison { write(comparison, to: &writer) } else { writer.null() }
        writer.key("power")
        if let power = estimate.power {
            writer.beginObject()
            writer.member("smallest_lift", power.smallestLift)
            writer.member("days_to_mde", power.days)
            writer.endObject()
        } else {
            writer.null()
        }
        writer.endObject()
    }

    private func write(_ comparison: ResultsComparison, to writer: inout JSONWriter) {
        writer.beginObject()
        let numbers = comparison.numbers
        writer.member("difference", numbers.difference)
        writer.member("difference_interval", numbers.differenceInterval)
        writer.member("lift", numbers.lift)
        writer.member("lift_interval", numbers.liftInterval)
        writer.member("p_value", numbers.pValue)
        writer.member("chance_to_win", comparison.chanceToWin)
        writer.member("expected_loss", comparison.expectedLoss)
        writer.member("sequential_difference_interval", numbers.sequentialDifferenceInterval)
        writer.member("sequential_lift_interval", numbers.sequentialLiftInterval)
        writer.member("sequential_p_value", numbers.sequentialPValue)
        writer.key("cuped")
        if let adjusted = comparison.adjusted {
            writer.beginObject()
            writer.member("decides", comparison.isDecidedAdjusted)
            writer.member("difference", adjusted.difference)
            writer.member("difference_interval", adjusted.differenceInterval)
            writer.member("lift", adjusted.lift)
            writer.member("lift_interval", adjusted.liftInterval)
            writer.member("p_value", adjusted.pValue)
            writer.member("sequential_difference_interval", adjusted.sequentialDifferenceInterval)
            writer.member("sequential_lift_interval", adjusted.sequentialLiftInterval)
            writer.member("sequential_p_value", adjusted.sequentialPValue)
            writer.member("variance_reduction", comparison.varianceReduction)
            writer.endObject()
        } else {
            writer.null()
        }
        writer.endObject()
    }
}

extension MetricDefinition.Statistic {
    /// The name of the member with the estimate.
    fileprivate var member: StaticString {
        switch self {
        case .rate: "rate"
        case .mean: "mean"
        case .ratio: "ratio"
        }
    }
}

extension JSONWriter {
    fileprivate mutating func member(_ name: StaticString, _ number: Double?) {
        key(name)
        if let value = number { self.number(value) } else { null() }
    }

    fileprivate mutating func member(_ name: StaticString, _ interval: ClosedRange<Double>?) {
        key(name)
        guard let interval else { return null() }
        beginArray()
        number(interval.lowerBound)
        number(interval.upperBound)
        endArray()
    }
}

extension ExperimentResults {
    /// The results as CSV (RFC 4180), one line for each variation and metric, or for each day and variation; unknown or
    /// infinite numbers are empty.
    var csv: String {
        if let breakdown { return breakdown.csv }
        let (header, rows) = query.isByDay ? csvByDay : csvByMetric
        return Self.csv(header, rows)
    }

    private var csvByDay: (header: [String], rows: [[String]]) {
        let header = [
            "experiment_key", "goal", "day", "variation_key", "variation_id", "is_baseline", "users",
            "multiple_variations",
            "forced",
            "events", "converted", "value",
        ]
        let rows = days.flatMap { day in
            day.variations.map { tally in
                [
                    experiment.key.string, subject.string, day.date,
                    experiment.variation(id: tally.variationID)?.key.string ?? "", tally.variationID.string,
                    "\(tally.variationID == baseline?.id)", "\(tally.counted)", "\(tally.multipleVariations)",
                    "\(tally.chosen)",
                    "\(tally.goal.events)", "\(tally.goal.converted)",
                    hasValues || measured != nil ? tally.goal.y.value.description : "",
                ]
            }
        }
        return (header, rows)
    }

    var csvByMetric: (header: [String], rows: [[String]]) {
        let header = [
            "experiment_key", "goal", "variation_key", "variation_id", "is_baseline", "users", "multiple_variations",
            "forced",
            "events", "converted", "metric", "mean", "standard_deviation", "difference", "difference_low",
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

    static func csv(_ header: [String], _ rows: [[String]]) -> String {
        ([header] + rows).map { $0.map(quoted).joined(separator: ",") + "\r\n" }.joined()
    }

    private func row(
        _ result: VariationResult, _ metric: String, _ estimate: Estimate, sum: Double?
    ) -> [String] {
        let (comparison, numbers) = (estimate.comparison, estimate.comparison?.numbers)
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
            "\(tally.goal.converted)",
            metric,
        ] + fields.map(Self.cell)
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

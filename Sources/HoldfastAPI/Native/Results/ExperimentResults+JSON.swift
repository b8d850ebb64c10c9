import Bucketing
import Chronology
import Definitions
import HoldfastCore
import JSON
import Storage

/// Renders results as JSON: the response to `GET /v1/experiments/{key}/results` with a goal or a metric. Each function
/// writes the member of its name.
extension ExperimentResults {
    var json: [UInt8] {
        var writer = JSONWriter()
        writer.beginObject()
        writer.member("experiment_id", experiment.id.string)
        writer.member("experiment_key", experiment.key.string)
        writer.member("sdk_key", sdkKey)
        if let goal = query.goal { writer.member("goal", goal.string) }
        if let measured { writeMetric(measured, to: &writer) }
        writer.member("baseline", baseline?.name ?? "")
        writer.member("confidence", query.confidence)
        if let frozenAt { writer.member("frozen_at", frozenAt.rfc3339) }
        writeFilter(to: &writer)
        writeUsers(to: &writer)
        writeVerdict(to: &writer)
        writeSampleRatio(to: &writer)
        writePower(to: &writer)
        writeControlCheck(to: &writer)
        writeBandit(to: &writer)
        writer.key("variations")
        writer.beginArray()
        for result in variations { writeVariation(result, to: &writer) }
        writer.endArray()
        writer.key("removed_variations")
        writer.beginArray()
        for removed in removedVariations { writeRemovedVariation(removed, to: &writer) }
        writer.endArray()
        if query.isByDay { writeDays(to: &writer) }
        if let breakdown {
            writer.key("breakdown")
            writer.raw(breakdown.json.encoded())
        }
        writeWarnings(to: &writer)
        writer.endObject()
        return writer.finish()
    }

    // MARK: The experiment and its users

    private func writeMetric(_ measured: MeasuredMetric, to writer: inout JSONWriter) {
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

    /// Writes which users count: the days of enrollment and the filter of the query.
    private func writeFilter(to writer: inout JSONWriter) {
        if let days = query.enrolledOn {
            writer.member("enrolled_from", days.lowerBound == .min ? nil : Instant(day: days.lowerBound).date)
            writer.member("enrolled_to", days.upperBound == .max ? nil : Instant(day: days.upperBound).date)
        }
        if let filter = query.filter.json {
            writer.key("filter")
            writer.raw(filter.encoded())
            // The results of a metric have this member in `metric`.
            if measured == nil { writer.member("enrolled_until", enrolledUntil.map { Instant(day: $0).date }) }
        }
    }

    /// Writes the numbers of counted users, and of users who are left out.
    private func writeUsers(to writer: inout JSONWriter) {
        writer.key("users")
        writer.beginObject()
        writer.member("counted", counted)
        writer.member("multiple_variations", multipleVariations)
        writer.member("forced", chosen)
        writer.member("excluded_users", excludedUsers)
        writer.endObject()
        if notRunning > 0 { writer.member("not_running_exposures", notRunning) }
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

    /// Writes the A/A test: the baseline compared with the variation `control-check`, which has the same content.
    private func writeControlCheck(to writer: inout JSONWriter) {
        writer.key("control_check")
        guard let controlCheck else { return writer.null() }
        writer.beginObject()
        writer.member("conversion_p_value", controlCheck.conversionPValue)
        writer.member("value_p_value", controlCheck.valuePValue)
        writer.member("differs", controlCheck.isSuspicious)
        writer.endObject()
    }

    private func writeBandit(to writer: inout JSONWriter) {
        guard let adaptive else { return }
        writer.key("bandit")
        writer.beginObject()
        writer.member("weighted", measured?.definition.statistic != .ratio)
        writer.member("users", adaptive.users)
        writer.member("users_without_probability", adaptive.usersWithoutProbability)
        writer.endObject()
    }

    // MARK: Variations

    /// Writes a variation: its users, and the estimate of the metric. Without a metric, there are the estimates of the
    /// conversion rate and of the mean value.
    private func writeVariation(_ result: VariationResult, to writer: inout JSONWriter) {
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
            writeEstimate(estimate, measured.definition.statistic.member, sum: sum, hasUsers, to: &writer)
            if !result.steps.isEmpty { writeSteps(result.steps, hasUsers, to: &writer) }
            return writer.endObject()
        }
        writer.key("conversion")
        writeEstimate(result.conversion, "rate", sum: nil, hasUsers, to: &writer)
        writer.key("value")
        if let value = result.value {
            writeEstimate(value, "mean", sum: result.tally.goal.y.value, hasUsers, to: &writer)
        } else {
            writer.null()
        }
        writer.endObject()
    }

    /// Writes the steps of a funnel.
    private func writeSteps(_ steps: [Step], _ hasUsers: Bool, to writer: inout JSONWriter) {
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

    /// Writes an estimate, its comparison with the baseline, and the power to detect a difference.
    ///
    /// - Parameter sum: the sum over the counted users; `nil` for a rate.
    private func writeEstimate(
        _ estimate: Estimate, _ name: StaticString, sum: Double?, _ hasUsers: Bool, to writer: inout JSONWriter
    ) {
        writer.beginObject()
        // The mean of nobody is unknown, not 0.
        let isKnown = hasUsers && estimate.mean.isFinite
        writer.member(name, isKnown ? estimate.mean : nil)
        if let sum { writer.member("sum", sum) }
        writer.member("standard_deviation", isKnown ? estimate.standardDeviation : nil)
        writer.key("comparison")
        if let comparison = estimate.comparison { writeComparison(comparison, to: &writer) } else { writer.null() }
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

    /// Writes three kinds of numbers: of a single analysis, valid at every interim look (sequential), and adjusted by
    /// CUPED.
    private func writeComparison(_ comparison: ResultsComparison, to writer: inout JSONWriter) {
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

    /// Writes the users of a variation that the experiment no longer has.
    private func writeRemovedVariation(_ removed: RemovedVariation, to writer: inout JSONWriter) {
        writer.beginObject()
        writer.member("variation_id", removed.id.string)
        writer.member("variation_key", removed.key?.string)
        writer.member("users", removed.users.counted)
        writer.member("multiple_variations", removed.users.multipleVariations)
        writer.member("forced", removed.users.chosen)
        writer.endObject()
    }

    /// Returns a share as a percentage, rounded so that no binary fraction shows.
    private static func percentage(_ share: Double) -> Double { (share * 1e12).rounded() / 1e10 }

    // MARK: Days and warnings

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

    private func writeWarnings(to writer: inout JSONWriter) {
        writer.key("warnings")
        writer.beginArray()
        for warning in warnings {
            writer.beginObject()
            writer.member("code", warning.code.rawValue)
            writer.member("message", warning.message)
            writer.endObject()
        }
        writer.endArray()
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

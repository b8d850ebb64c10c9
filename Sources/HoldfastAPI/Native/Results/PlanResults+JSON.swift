import Bucketing
import Chronology
import Definitions
import HoldfastCore
import JSON
import Storage

/// Renders the results of all metrics of an experiment's plan as JSON, with one verdict.
extension PlanResults {
    /// Returns the response to `GET /v1/experiments/{key}/results` if the query names neither a goal nor a metric.
    ///
    /// - Parameter plan: the plan in the format of `GET /v1/experiments/{key}`.
    func json(plan: JSONValue) -> JSONValue {
        var object = JSONObject()
        object["experiment_id"] = .string(common.experiment.id.string)
        object["experiment_key"] = .string(common.experiment.key.string)
        object["sdk_key"] = .string(common.sdkKey)
        object["plan"] = plan
        object["baseline"] = .string(common.baseline?.name ?? "")
        object["frozen_at"] = common.frozenAt.map { .string($0.rfc3339) }
        if let filter = common.query.filter.json { object["filter"] = filter }
        object["users"] = [
            "counted": .integer(Int64(common.counted)),
            "multiple_variations": .integer(Int64(common.multipleVariations)),
            "forced": .integer(Int64(common.chosen)), "excluded_users": .integer(Int64(common.excludedUsers)),
        ]
        if common.notRunning > 0 { object["not_running_exposures"] = .integer(Int64(common.notRunning)) }
        object["verdict"] = [
            "decision": .string(verdict.decision.rawValue),
            "winner": verdict.winner.map { .string(common.variations[$0].name) } ?? .null,
            "reasons": .array(verdict.reasons.map { .string($0) }),
        ]
        object["sample_ratio"] = [
            "p_value": Self.json(common.sampleRatio.pValue), "mismatch": .bool(common.sampleRatio.isMismatch),
        ]
        object["metrics"] = .array(metrics.map(\.json))
        object["warnings"] = .array(warnings.map(\.json))
        return .object(object)
    }

    /// Returns a number; `null` if it is unknown or infinite.
    static func json(_ number: Double?) -> JSONValue {
        number.flatMap { $0.isFinite ? .number($0) : nil } ?? .null
    }

    /// Returns an interval as an array of its bounds; `null` if it is unknown.
    static func json(_ interval: ClosedRange<Double>?) -> JSONValue {
        interval.map { [json($0.lowerBound), json($0.upperBound)] } ?? .null
    }
}

extension PlanResults.Metric {
    fileprivate var json: JSONValue {
        var object = JSONObject()
        object["key"] = .string(results.subject.string)
        object["role"] = .string(role.name)
        if case .guardrail(let margin) = role { object["margin"] = margin.json }
        if let definition = results.measured?.definition {
            object["kind"] = .string(definition.kind.rawValue)
            object["direction"] = .string(definition.direction.rawValue)
            if !definition.unit.isEmpty { object["unit"] = .string(definition.unit) }
        }
        object["variations"] = .array(
            results.variations.indices.map { index in
                let member = results.json(results.variations[index], findings[index])
                // For some guardrails the share of users behind them is watched, too.
                guard !shareFindings.isEmpty, var object = member.object else { return member }
                object["share_of_users"] = shareFindings[index].map(\.json) ?? .null
                return .object(object)
            })
        object["warnings"] = .array(warnings.map(\.json))
        return .object(object)
    }
}

extension ExperimentResults {
    /// Returns the results of one variation.
    ///
    /// - Parameter finding: the verdict about the variation; `nil` for the baseline.
    func json(_ result: VariationResult, _ finding: Verdict.Finding?) -> JSONValue {
        var object = JSONObject()
        object["variation_id"] = .string(result.id.string)
        object["variation_key"] = .string(result.name)
        object["users"] = .integer(Int64(result.tally.counted))
        // The mean of nobody is unknown, not 0.
        let estimate = result.tally.counted > 0 ? estimate(of: result) : nil
        object["mean"] = PlanResults.json(estimate?.mean)
        object["standard_deviation"] = PlanResults.json(estimate?.standardDeviation)
        object["outcome"] = finding.map { .string($0.outcome.rawValue) } ?? .null
        for member in finding?.members ?? Verdict.Finding.noMembers { object[member.key] = member.value }
        let comparison = finding?.effect == nil ? nil : estimate?.comparison
        object["adjusted"] = comparison.map { .bool($0.isDecidedAdjusted) } ?? .null
        // These numbers are valid only if this is the only analysis, at a time that was planned before; see
        // ``ResultsComparison/Numbers``. The verdict does not use them.
        object["one_look"] = comparison.map(\.singleLook) ?? .null
        return .object(object)
    }
}

extension ResultsComparison {
    /// The numbers of an analysis at a single, planned time.
    fileprivate var singleLook: JSONValue {
        let decisive = isDecidedAdjusted ? adjusted ?? numbers : numbers
        return [
            "difference_interval": PlanResults.json(decisive.differenceInterval),
            "lift_interval": PlanResults.json(decisive.liftInterval),
            "p_value": PlanResults.json(decisive.pValue),
            "chance_to_win": PlanResults.json(chanceToWin),
            "expected_loss": PlanResults.json(expectedLoss),
        ]
    }
}

extension Verdict.Finding {
    fileprivate var json: JSONValue {
        var object = members
        object["outcome"] = .string(outcome.rawValue)
        return .object(object)
    }

    fileprivate var members: JSONObject {
        var object = JSONObject()
        object["difference"] = PlanResults.json(effect?.difference)
        object["difference_interval"] = PlanResults.json(effect?.differenceInterval)
        object["lift"] = PlanResults.json(effect?.lift)
        object["lift_interval"] = PlanResults.json(effect?.liftInterval)
        object["p_value"] = PlanResults.json(pValue)
        return object
    }

    /// The members of the baseline, which has no finding: all names of ``members``, with the value null.
    fileprivate static let noMembers: JSONObject = {
        var object = JSONObject()
        for name in ["difference", "difference_interval", "lift", "lift_interval", "p_value"] { object[name] = .null }
        return object
    }()
}

extension ExperimentResults.Warning {
    var json: JSONValue { ["code": .string(code.rawValue), "message": .string(message)] }
}

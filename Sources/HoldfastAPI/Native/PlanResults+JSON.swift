import Bucketing
import HoldfastCore
import JSON
import Storage

extension PlanResults {
    /// The response of `GET /v1/experiments/{key}/results` without a goal and a metric.
    ///
    /// - Parameter plan: as the experiment's description has it.
    func json(plan: JSONValue) -> JSONValue {
        var object = JSONObject()
        object["experiment_id"] = .string(common.experiment.id.string)
        object["experiment_key"] = .string(common.experiment.key.string)
        object["sdk_key"] = .string(common.sdkKey)
        object["plan"] = plan
        object["baseline"] = .string(common.baseline?.name ?? "")
        object["frozen_at"] = common.frozenAt.map { .string($0.rfc3339) }
        object["users"] = [
            "counted": .integer(Int64(common.counted)),
            "multiple_variations": .integer(Int64(common.multipleVariations)),
            "forced": .integer(Int64(common.chosen)), "excluded_users": .integer(Int64(common.excludedUsers)),
        ]
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

    static func json(_ number: Double?) -> JSONValue {
        number.flatMap { $0.isFinite ? .number($0) : nil } ?? .null
    }

    static func json(_ interval: ClosedRange<Double>?) -> JSONValue {
        interval.map { [json($0.lowerBound), json($0.upperBound)] } ?? .null
    }
}

extension PlanResults.Metric {
    fileprivate var json: JSONValue {
        var object = JSONObject()
        object["key"] = .string(results.subject.string)
        object["role"] = .string(role.name)
        if case .guardrail(let margin) = role { object["margin"] = .number(margin) }
        if let definition = results.measured?.definition {
            object["kind"] = .string(definition.kind.rawValue)
            object["direction"] = .string(definition.direction.rawValue)
        }
        object["variations"] = .array(zip(results.variations, findings).map { results.json($0, $1) })
        object["warnings"] = .array(warnings.map(\.json))
        return .object(object)
    }
}

extension ExperimentResults {
    /// - Parameter finding: `nil` for the baseline.
    func json(_ result: VariationResult, _ finding: PlanVerdict.Finding?) -> JSONValue {
        var object = JSONObject()
        object["variation_id"] = .string(result.id.string)
        object["variation_key"] = .string(result.name)
        object["users"] = .integer(Int64(result.tally.counted))
        // The mean of nobody is unknown, not 0.
        let estimate = result.tally.counted > 0 ? estimate(of: result) : nil
        object["mean"] = PlanResults.json(estimate?.mean)
        object["standard_deviation"] = PlanResults.json(estimate?.standardDeviation)
        object["outcome"] = finding.map { .string($0.outcome.rawValue) } ?? .null
        object["lift"] = PlanResults.json(finding?.lift)
        object["lift_interval"] = PlanResults.json(finding?.liftInterval)
        object["p_value"] = PlanResults.json(finding?.pValue)
        object["one_look"] =
            finding?.lift == nil
            ? .null
            : estimate?.comparison.map { comparison in
                [
                    "lift_interval": PlanResults.json(comparison.liftInterval),
                    "p_value": PlanResults.json(comparison.pValue),
                    "chance_to_win": PlanResults.json(comparison.chanceToWin),
                    "expected_loss": PlanResults.json(comparison.expectedLoss),
                ]
            } ?? .null
        return .object(object)
    }
}

extension ExperimentResults.Warning {
    var json: JSONValue { ["code": .string(code), "message": .string(message)] }
}

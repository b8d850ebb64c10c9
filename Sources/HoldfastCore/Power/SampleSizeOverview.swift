import Bucketing
public import Chronology
public import Definitions
public import JSON
import Storage

/// The numbers of users and days that an experiment needs: for each of its primary metrics and guardrails, and for all
/// of them together.
public struct SampleSizeOverview: Sendable {
    /// A metric with its observations.
    public struct Subject: Sendable {
        /// The role of the metric; `nil` if the request is about this metric alone.
        let role: Verdict.Role?
        let metric: MetricDefinition
        let own: ResultsTotals
        let others: [ResultsTotals]

        public init(
            _ role: Verdict.Role?, _ metric: MetricDefinition, own: ResultsTotals,
            others: [ResultsTotals]
        ) {
            self.role = role
            self.metric = metric
            self.own = own
            self.others = others
        }
    }

    /// The estimate for one of several metrics.
    fileprivate struct Part {
        let role: Verdict.Role
        let metric: Identifier
        /// The estimate, or an error about a required number that is neither in the request nor observed.
        let estimate: Result<SampleSizeEstimate, CoreError>
    }

    /// The estimate for the most important metric.
    private let first: SampleSizeEstimate
    /// The estimates for all metrics; empty if the request is about a single metric.
    private let parts: [Part]

    /// - Parameter subjects: the metrics, the most important first.
    /// - Returns: `nil` if there are no metrics.
    /// - Throws: 422 if a number that the first metric requires is neither in the request nor observed.
    public init?(
        _ request: SampleSizeRequest, _ rule: SampleSizeEstimate.Rule, _ subjects: [Subject], at now: Instant
    ) throws(CoreError) {
        let estimates = subjects.map { subject in
            Result { () throws(CoreError) in
                try SampleSizeEstimate(request, rule, subject.metric, own: subject.own, others: subject.others, at: now)
            }
        }
        guard let first = try estimates.first?.get() else { return nil }
        self.first = first
        parts = zip(subjects, estimates).compactMap { subject, estimate in
            subject.role.map { Part(role: $0, metric: subject.metric.key, estimate: estimate) }
        }
    }

    /// The response to `POST /v1/experiments/{key}/plan`: the numbers of the first metric. If the request is not about
    /// a single metric, the response also has the numbers of all metrics together (`all`) and of each (`metrics`).
    public var json: JSONValue {
        guard !parts.isEmpty, var object = first.json.object else { return first.json }
        object["all"] = needsOfAllMetrics
        object["metrics"] = .array(parts.map(\.json))
        return .object(object)
    }

    /// The needs for detecting the effects of all metrics in one experiment, with the requested power; null if the
    /// estimate of any metric has failed.
    ///
    /// β (1 minus the power) is divided by the number of metrics. The probability of missing any of the effects is then
    /// at most β.
    private var needsOfAllMetrics: JSONValue {
        let estimates = parts.compactMap { try? $0.estimate.get() }
        guard estimates.count == parts.count else { return .null }
        let power = 1 - (1 - first.rule.power) / Double(parts.count)
        let needs = estimates.map { $0.needs(power: power) }
        return [
            "power_per_metric": .number(power), "one_look": first.json(.greatest(of: needs.map(\.oneLook))),
            "any_time": first.json(.greatest(of: needs.map(\.anyTime))),
        ]
    }
}

extension SampleSizeOverview.Part {
    /// The numbers of the metric with its role. After a failure, `missing` explains which number is required.
    fileprivate var json: JSONValue {
        var object = JSONObject()
        object["role"] = .string(role.name)
        switch estimate {
        case .success(let estimate):
            for member in estimate.json.object ?? JSONObject() where member.key != "experiment_key" {
                object[member.key] = member.value
            }
        case .failure(let error):
            object["metric"] = JSONValue(metric)
            object["missing"] = .string(error.detail)
        }
        return .object(object)
    }
}

extension SampleSizeEstimate.Needs {
    /// Returns the greatest number of users and the greatest number of days of several metrics. If any metric lacks a
    /// number, the result lacks it, too.
    fileprivate static func greatest(of needs: [Self]) -> Self {
        func greatest(_ numbers: [Double?]) -> Double? {
            let known = numbers.compactMap { $0 }
            return known.count == numbers.count ? known.max() : nil
        }
        return Self(users: greatest(needs.map(\.users)), days: greatest(needs.map(\.days)), detectableEffect: nil)
    }
}

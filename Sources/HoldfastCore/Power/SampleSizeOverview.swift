import Bucketing
public import Chronology
public import Definitions
public import JSON
import Storage

/// The number of users and days that an experiment needs for all its primary metrics and guardrails together.
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
        /// The estimate. A failure names the number that is neither in the request nor observed.
        let estimate: Result<SampleSizeEstimate, CoreError>
    }

    /// The estimate for the most important metric.
    private let first: SampleSizeEstimate
    /// The estimates for all metrics; empty if the request is about a single metric.
    private let parts: [Part]

    /// - Parameter subjects: at least one metric, the most important first.
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
    /// a single metric, also those of all metrics together and of each.
    public var json: JSONValue {
        guard !parts.isEmpty, var object = first.json.object else { return first.json }
        object["all"] = together
        object["metrics"] = .array(parts.map(\.json))
        return .object(object)
    }

    /// The needs for detecting the effects of all metrics in one experiment, with the requested power; null if a metric
    /// has no numbers.
    ///
    /// β (1 minus the power) is divided by the number of metrics, so that it bounds the probability of missing any of
    /// the effects.
    private var together: JSONValue {
        let estimates = parts.compactMap { try? $0.estimate.get() }
        guard estimates.count == parts.count else { return .null }
        let power = 1 - (1 - first.rule.power) / Double(parts.count)
        let needs = estimates.map { $0.needs(power: power) }
        return [
            "power_per_metric": .number(power), "one_look": first.json(.greatest(of: needs.map(\.one))),
            "any_time": first.json(.greatest(of: needs.map(\.always))),
        ]
    }
}

extension SampleSizeOverview.Part {
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
    /// Returns the greatest numbers of users and days of several metrics; `nil` instead of a number that any of them
    /// lacks.
    fileprivate static func greatest(of needs: [Self]) -> Self {
        func greatest(_ numbers: [Double?]) -> Double? {
            let known = numbers.compactMap { $0 }
            return known.count == numbers.count ? known.max() : nil
        }
        return Self(users: greatest(needs.map(\.users)), days: greatest(needs.map(\.days)), detectableEffect: nil)
    }
}

public import Bucketing
public import Definitions
public import JSON
import Storage

/// The results of all metrics of an experiment, with one verdict over them.
public struct PlanResults: Sendable {
    public struct Metric: Sendable {
        public let role: Verdict.Role
        public let results: ExperimentResults
        /// The findings, in the order of the variations; `nil` for the baseline.
        public let findings: [Verdict.Finding?]
        /// The findings about the share of users behind a guardrail, in the same order; empty if the share is not
        /// watched.
        public let shareFindings: [Verdict.Finding?]

        public var warnings: [ExperimentResults.Warning] { results.specificWarnings }
    }

    public let metrics: [Metric]
    public let verdict: Verdict
    /// The maximum probability of ever deciding for a difference that does not exist.
    public let alpha: Double

    /// - Parameters:
    ///   - metrics: the metrics of one experiment, at least one.
    ///   - alpha: must equal 1 minus the confidence of the metrics' queries.
    /// - Returns: `nil` if there are no metrics.
    public init?(_ metrics: [(role: Verdict.Role, results: ExperimentResults)], alpha: Double) {
        guard let first = metrics.first?.results else { return nil }
        let names = first.variations.map(\.name)
        let baseline = first.variations.firstIndex(where: \.isBaseline) ?? 0
        let variations = names.indices.filter { $0 != baseline }
        let shares = metrics.map { $1.shareRole($0) }
        let comparisons =
            metrics.flatMap { role, results in variations.map { results.comparison(role, of: $0) } }
            + zip(metrics, shares).flatMap { metric, role in
                role.map { role in variations.map { metric.results.comparison(role, of: $0) } } ?? []
            }
        let reasons = Verdict.Conditions(of: metrics.filter { $0.role == .primary }.map(\.results), first)
        let verdict = Verdict(
            comparisons, names: names, baseline: baseline, alpha: alpha, invalid: reasons.invalid,
            unready: reasons.unready)
        self.verdict = verdict
        self.alpha = alpha
        var rest = verdict.findings[...]
        func next() -> [Verdict.Finding?] {
            let own = rest.prefix(variations.count)
            rest = rest.dropFirst(variations.count)
            return names.indices.map { variation in own.first { $0.variation == variation } }
        }
        let findings = metrics.map { _ in next() }
        let shareFindings = shares.map { $0 == nil ? [] : next() }
        self.metrics = metrics.indices.map { index in
            Metric(
                role: metrics[index].role, results: metrics[index].results, findings: findings[index],
                shareFindings: shareFindings[index])
        }
    }

    /// The results that all metrics share: users, split and variations.
    public var common: ExperimentResults { metrics[0].results }

    /// The warnings that are not about one metric.
    public var warnings: [ExperimentResults.Warning] { common.generalWarnings }
}

/// The metrics of an experiment, deciding and secondary, in the order of importance.
public struct MeasuredPlan: Sendable {
    public let metrics: [(role: Verdict.Role, metric: MetricDefinition)]
    /// The probability of ever deciding for a difference that does not exist.
    public let alpha: Double
    /// The member `plan` of the experiment; null for a holdout.
    public let description: JSONValue
}

extension Project {
    /// Returns the plan of an experiment, or the metrics of a holdout.
    ///
    /// - Returns: `nil` if there are no metrics.
    public func plan(of experiment: Experiment) -> MeasuredPlan? {
        let definitions = definitions
        let measured = metrics(of: experiment)
        let named: [(Verdict.Role, Identifier)] =
            measured.primary.map { (.primary, $0) }
            + measured.guardrails.map { (.guardrail(margin: $0.margin), $0.metric) }
            + measured.secondary.map { (.secondary, $0) }
        let metrics = named.compactMap { role, key in definitions.metrics[key].map { (role: role, metric: $0) } }
        guard !metrics.isEmpty else { return nil }
        let definition = definitions.experiments[experiment.key].flatMap { $0.id == experiment.id ? $0 : nil }
        return MeasuredPlan(
            metrics: metrics, alpha: definition?.details.plan.alpha ?? DecisionRule.defaultAlpha,
            description: definition.flatMap { definitions.planDescription(of: $0) } ?? .null)
    }
}

extension Verdict {
    /// The conditions because of which there is no verdict, independently of the metrics.
    fileprivate struct Conditions {
        var invalid: [String] = []
        var unready: [String] = []

        /// - Parameter primary: the results of the primary metrics, from which the control checks are taken.
        init(of primary: [ExperimentResults], _ first: ExperimentResults) {
            for warning in (primary.isEmpty ? [first] : primary).flatMap(\.invalidatingWarnings)
            where !invalid.contains(warning.message) {
                invalid.append(warning.message)
            }
            unready = first.generalUnreadiness.map(\.message)
        }
    }
}

extension ExperimentResults {
    func comparison(_ role: Verdict.Role, of index: Int) -> Verdict.Comparison {
        let estimate = role.isShareOfUsers ? variations[index].conversion : self.estimate(of: variations[index])
        return comparison(role, of: index, unreadyWarnings.isEmpty ? estimate?.comparison?.evidence : nil)
    }

    func comparison(_ role: Verdict.Role, of index: Int, _ evidence: Evidence?) -> Verdict.Comparison {
        Verdict.Comparison(
            metric: subject, role: role, isDecrease: measured?.definition.direction == .decrease,
            unit: role.isShareOfUsers ? "" : measured?.definition.unit ?? "", variation: index, evidence: evidence)
    }

    /// Returns the role of the share of users behind a metric. The share is watched for guardrails that are totals or
    /// means; `nil` for others.
    func shareRole(_ role: Verdict.Role) -> Verdict.Role? {
        guard case .guardrail(.share(let margin)) = role else { return nil }
        switch measured?.definition.kind {
        case .total, .mean: return .shareOfGuardrail(margin: .share(margin))
        default: return nil
        }
    }
}

public import Bucketing
public import Definitions
public import JSON
import Storage

/// The results of all metrics of an experiment, with one verdict over them. All comparisons of all metrics are tested
/// together; see ``Verdict``.
public struct PlanResults: Sendable {
    /// A metric with its results.
    public struct Metric: Sendable {
        public let role: Verdict.Role
        public let results: ExperimentResults
        /// The findings, one for each variation in order; `nil` for the baseline.
        public let findings: [Verdict.Finding?]
        /// The findings about the share of users with any event of a guardrail, in the same order; empty if the share
        /// is not tested. See ``Verdict/Role/shareOfGuardrail(margin:)``.
        public let shareFindings: [Verdict.Finding?]

        /// The warnings about this metric only.
        public var warnings: [ExperimentResults.Warning] { results.specificWarnings }
    }

    /// The metrics with their results, in the order of the plan.
    public let metrics: [Metric]
    /// The verdict over all metrics.
    public let verdict: Verdict
    /// The maximum probability of ever deciding for a difference that does not exist.
    public let alpha: Double

    /// - Parameters:
    ///   - metrics: the metrics of one experiment.
    ///   - alpha: the level, which must equal 1 minus the confidence of the metrics' queries.
    /// - Returns: `nil` if there are no metrics.
    public init?(_ metrics: [(role: Verdict.Role, results: ExperimentResults)], alpha: Double) {
        guard let first = metrics.first?.results else { return nil }
        let names = first.variations.map(\.name)
        let baseline = first.variations.firstIndex(where: \.isBaseline) ?? 0
        let compared = names.indices.filter { $0 != baseline }
        let shareRoles = metrics.map { role, results in results.shareRole(role) }

        // First the comparisons of all metrics, then the comparisons of shares of users.
        var comparisons: [Verdict.Comparison] = []
        for (role, results) in metrics {
            comparisons += compared.map { results.comparison(role, of: $0) }
        }
        for (metric, shareRole) in zip(metrics, shareRoles) {
            guard let shareRole else { continue }
            comparisons += compared.map { metric.results.comparison(shareRole, of: $0) }
        }
        let obstacles = Verdict.Obstacles(of: metrics.filter { $0.role == .primary }.map(\.results), first)
        let verdict = Verdict(
            comparisons, names: names, baseline: baseline, alpha: alpha, invalid: obstacles.invalid,
            unready: obstacles.unready)
        self.verdict = verdict
        self.alpha = alpha

        // The findings have the order of the comparisons, so the findings of the next metric are at the front.
        var remaining = verdict.findings[...]
        func takeFindings() -> [Verdict.Finding?] {
            let own = remaining.prefix(compared.count)
            remaining = remaining.dropFirst(compared.count)
            return names.indices.map { variation in own.first { $0.variation == variation } }
        }
        let findings = metrics.map { _ in takeFindings() }
        let shareFindings = shareRoles.map { $0 == nil ? [] : takeFindings() }
        self.metrics = metrics.indices.map { index in
            Metric(
                role: metrics[index].role, results: metrics[index].results, findings: findings[index],
                shareFindings: shareFindings[index])
        }
    }

    /// The results of the first metric, for the users, the split and the variations, which all metrics share.
    public var common: ExperimentResults { metrics[0].results }

    /// The warnings that are not about one metric.
    public var warnings: [ExperimentResults.Warning] { common.generalWarnings }
}

/// The metrics of an experiment or a holdout, in the order of importance: primary metrics, guardrails, secondary
/// metrics.
public struct MeasuredPlan: Sendable {
    public let metrics: [(role: Verdict.Role, metric: MetricDefinition)]
    /// The probability of ever deciding for a difference that does not exist.
    public let alpha: Double
    /// The member `plan` of the experiment; null for a holdout.
    public let description: JSONValue
}

extension Project {
    /// Returns the plan of an experiment or a holdout; `nil` if it has no metrics.
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
    /// The warnings, as sentences, because of which there is no verdict.
    fileprivate struct Obstacles {
        /// Why the users are not comparable.
        var invalid: [String] = []
        /// Why there is too little data.
        var unready: [String] = []

        /// - Parameters:
        ///   - primary: the results of the primary metrics. Each metric has an A/A test of its own.
        ///   - first: the results of any metric, for the warnings that all metrics share.
        init(of primary: [ExperimentResults], _ first: ExperimentResults) {
            let checked = primary.isEmpty ? [first] : primary
            for warning in checked.flatMap(\.invalidatingWarnings) where !invalid.contains(warning.message) {
                invalid.append(warning.message)
            }
            unready = first.generalUnreadiness.map(\.message)
        }
    }
}

extension ExperimentResults {
    /// Returns a variation's comparison for the verdict. The comparison has no evidence while the metric has a warning
    /// of ``unreadyWarnings``.
    func comparison(_ role: Verdict.Role, of index: Int) -> Verdict.Comparison {
        let estimate = role.isShareOfUsers ? variations[index].conversion : self.estimate(of: variations[index])
        return comparison(role, of: index, unreadyWarnings.isEmpty ? estimate?.comparison?.evidence : nil)
    }

    /// Returns a variation's comparison for the verdict, with the given evidence.
    func comparison(_ role: Verdict.Role, of index: Int, _ evidence: Evidence?) -> Verdict.Comparison {
        Verdict.Comparison(
            metric: subject, role: role, isDecrease: measured?.definition.direction == .decrease,
            unit: role.isShareOfUsers ? "" : measured?.definition.unit ?? "", variation: index, evidence: evidence)
    }

    /// Returns the role of the share of users with any event that a metric counts; `nil` if the share is not tested.
    ///
    /// The share is tested for guardrails that are totals or means, because it shows breakage earlier than they do. The
    /// margin must be relative: an absolute margin of a total is no margin of a share.
    func shareRole(_ role: Verdict.Role) -> Verdict.Role? {
        guard case .guardrail(.share(let margin)) = role else { return nil }
        switch measured?.definition.kind {
        case .total, .mean: return .shareOfGuardrail(margin: .share(margin))
        default: return nil
        }
    }
}

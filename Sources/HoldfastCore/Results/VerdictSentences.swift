import Bucketing
import Definitions

/// Formulates findings as sentences, such as "'green' is better than 'control': lift +5.1% (+1.2% to +9.3%), p =
/// 0.0123".
struct VerdictSentences {
    let comparisons: [Verdict.Comparison]
    let findings: [Verdict.Finding]
    /// The names of the variations.
    let names: [String]
    /// The index of the baseline in ``names``.
    let baseline: Int
    /// Whether a sentence begins with the role and the name of its metric.
    let namesMetrics: Bool

    /// Returns the significant findings about a variation that affect the verdict. The share of users of a guardrail
    /// affects the verdict only if it is beyond the margin.
    func certain(of variation: Int) -> [String] {
        sentences { finding in
            guard finding.variation == variation, finding.outcome != .uncertain else { return false }
            if finding.role.isShareOfUsers { return finding.outcome == .beyondMargin }
            return finding.role != .secondary
        }
    }

    /// Returns the findings about a variation that may still affect the verdict.
    func uncertain(of variation: Int) -> [String] {
        sentences { finding in
            guard finding.variation == variation, finding.outcome == .uncertain else { return false }
            return finding.role != .secondary && !finding.role.isShareOfUsers
        }
    }

    /// Returns the findings that exclude shipping a variation.
    func against(_ variation: Int) -> [String] {
        sentences { $0.variation == variation && $0.rulesOut }
    }

    /// Returns a sentence for each finding that is wanted, in their order.
    private func sentences(_ isWanted: (Verdict.Finding) -> Bool) -> [String] {
        findings.filter(isWanted).map { finding in
            let name = "'\(names[finding.variation])'"
            let base = "'\(names[baseline])'"
            let share = finding.role.isShareOfUsers ? " (share of users)" : ""
            let metric = namesMetrics ? "\(finding.role.name) metric '\(finding.metric)'\(share): " : ""
            return metric + statement(finding, name, base) + numbers(finding)
        }
    }

    /// Returns the statement of a finding, without numbers.
    private func statement(_ finding: Verdict.Finding, _ name: String, _ base: String) -> String {
        if let margin = finding.role.margin?.text(in: finding.unit) {
            let limit = "by its margin of \(margin)"
            switch finding.outcome {
            case .withinMargin: return "\(name) is not worse than \(base) \(limit)"
            case .beyondMargin:
                return "\(name) is worse than \(base) by more than its margin of \(margin)"
            default: return "whether \(name) is worse than \(base) \(limit) is not certain yet"
            }
        }
        switch finding.outcome {
        case .uncertain: return "whether \(name) differs from \(base) is not certain yet"
        default: return "\(name) is \(finding.outcome.rawValue) than \(base)"
        }
    }

    /// Returns the end of a sentence: the effect and the p-value, or the reason why there are none.
    private func numbers(_ finding: Verdict.Finding) -> String {
        guard let effect = finding.effect, let pValue = finding.pValue else {
            return ", because it has too few users yet"
        }
        let numbers = if case .absolute = finding.role.margin { effect.inUnits } else { "\(effect)" }
        let count = comparisons.count { $0.role == finding.role }
        let compared = namesMetrics ? "comparisons" : "variations"
        let correction = finding.role == .primary && count > 1 ? ", corrected for \(count) \(compared)" : ""
        return ": \(numbers), p \(ExperimentResults.short(pValue))\(correction)"
    }
}

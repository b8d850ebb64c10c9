public import Bucketing
public import Definitions
import Statistics

extension ExperimentMetrics.Margin: CustomStringConvertible {
    /// Returns the hypothesis that the metric has become worse by exactly the margin. A guardrail is tested against it.
    ///
    /// - Parameter isDecrease: whether less is better.
    func edge(isDecrease: Bool) -> NullHypothesis {
        switch self {
        case .share(let share): .lift(isDecrease ? share : -share)
        case .absolute(let number): .difference(isDecrease ? number : -number)
        }
    }

    /// The margin as text, without a unit.
    public var description: String { text(in: "") }

    /// Returns the margin as text, with the metric's unit.
    func text(in unit: String) -> String {
        switch self {
        case .share(let share): Verdict.percent(share, signed: false)
        case .absolute(let number): Verdict.number(number, signed: false, unit: unit)
        }
    }
}

extension Project {
    /// Returns the metrics of an experiment or a holdout. A holdout is compared like an experiment: as an
    /// ``Experiment`` with the holdout's id.
    public func metrics(of experiment: Experiment) -> ExperimentMetrics {
        let definitions = definitions
        if let holdout = definitions.holdouts[experiment.key], holdout.id == experiment.id { return holdout.metrics }
        return definitions.experiments[experiment.key]?.details.metrics ?? ExperimentMetrics()
    }
}

import Glibc
import Statistics

/// The difference of a variation from the baseline, with always-valid intervals. The intervals have the level of the
/// test, so they exclude 0 if and only if the test is significant.
public struct EffectSize: Sendable, CustomStringConvertible {
    /// The difference of the variation from the baseline, in units of the metric; positive if the variation has more.
    public let difference: Double
    /// The interval of the difference; `nil` if it is not bounded.
    public internal(set) var differenceInterval: ClosedRange<Double>?
    /// The difference as a share of the magnitude of the baseline's mean; `nil` if the mean is 0.
    public let lift: Double?
    /// The interval of the lift; `nil` if it is not bounded.
    public internal(set) var liftInterval: ClosedRange<Double>?
    /// The unit of the metric, for texts.
    private let unit: String

    init(_ evidence: Evidence, alpha: Double, unit: String = "") {
        self.unit = unit
        difference = evidence.contrast.difference
        differenceInterval = evidence.differenceInterval(alpha: alpha)
        lift = evidence.contrast.lift
        liftInterval = evidence.liftInterval(alpha: alpha)
    }

    /// The lift as text, such as `lift +5.1% (+1.2% to +9.3%)`; the difference if the lift is not bounded.
    public var description: String {
        if let lift, let interval = liftInterval {
            return "lift \(Verdict.percent(lift)) (\(Verdict.percent(interval.lowerBound)) to "
                + "\(Verdict.percent(interval.upperBound)))"
        }
        return inUnits + (lift == nil ? "" : "; the lift is not bounded")
    }

    /// The difference as text, such as `difference +0.21 EUR (+0.05 to +0.37)`.
    var inUnits: String {
        let interval = differenceInterval.map {
            " (\(Verdict.number($0.lowerBound)) to \(Verdict.number($0.upperBound)))"
        }
        return "difference \(Verdict.number(difference, unit: unit))\(interval ?? ", not bounded")"
    }
}

extension Verdict {
    /// Returns a share as a percentage with one decimal, such as `+5.1%` for 0.051. From 10,000% on, the result is only
    /// `> +10000%` or `< -10000%`.
    static func percent(_ share: Double, signed: Bool = true) -> String {
        guard abs(share) < 100 else { return share > 0 ? "> +10000%" : "< -10000%" }
        let rounded = (share * 1_000).rounded() / 10
        return "\(signed && rounded > 0 ? "+" : "")\(rounded)%"
    }

    /// Returns a number with four significant digits, and with its sign if `signed`.
    static func number(_ number: Double, signed: Bool = true, unit: String = "") -> String {
        let unit = unit.isEmpty ? "" : " " + unit
        guard number != 0, number.isFinite else { return "0" + unit }
        let scale = pow(10, 3 - floor(log10(abs(number))))
        // The scale of a number near the limits of Double is infinite or 0. Such a number is not rounded.
        let rounded = scale.isFinite && scale > 0 ? (number * scale).rounded() / scale : number
        return "\(signed && rounded > 0 ? "+" : "")\(rounded)\(unit)"
    }
}

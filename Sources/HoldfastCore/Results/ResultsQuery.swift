public import Bucketing
import Storage

/// What is asked of the results of an experiment.
public struct ResultsQuery: Sendable {
    public enum Format: String, Sendable {
        case json, csv
    }

    public var goal: Identifier
    /// A key or id of a variation; `nil`: `control`, or else the first.
    public var baseline: Identifier?
    /// The probability that an interval holds the truth.
    public var confidence = 0.95
    /// Users at which always-valid intervals are to be narrowest.
    var tuning = 5_000.0
    public var format = Format.json

    /// - Throws: 400, naming the parameter that is wrong.
    public init(_ query: [String: String]) throws(HoldfastError) {
        guard let goal = query["goal"], !goal.isEmpty else {
            throw HoldfastError(.invalid, "the query parameter `goal` is required")
        }
        self.goal = Identifier(goal)
        baseline = query["baseline"].map { Identifier($0) }
        if let text = query["confidence"] {
            guard let number = Double(text), (0.5...0.9999).contains(number) else {
                throw HoldfastError(.invalid, "`confidence` must be a number from 0.5 to 0.9999; got '\(text)'")
            }
            confidence = number
        }
        if let text = query["sequential_tuning"] {
            guard let number = Double(text), (1...1e9).contains(number) else {
                throw HoldfastError(.invalid, "`sequential_tuning` must be a number of users from 1 to 1e9; got '\(text)'")
            }
            tuning = number
        }
        if let text = query["format"] {
            guard let known = Format(rawValue: text) else {
                throw HoldfastError(.invalid, "`format` must be 'json' or 'csv'; got '\(text)'")
            }
            format = known
        }
    }

    public static let parameters = ["goal", "baseline", "confidence", "sequential_tuning", "format"]
}

import Bucketing
import HTTPServer

/// What is asked of the results of an experiment.
struct ResultsQuery: Sendable {
    enum Format: String {
        case json, csv
    }

    var goal: Identifier
    /// A key or id of a variation; `nil`: `control`, or else the first.
    var baseline: Identifier?
    /// The probability that an interval holds the truth.
    var confidence = 0.95
    /// Users at which always-valid intervals are to be narrowest.
    var tuning = 5_000.0
    var format = Format.json

    /// - Throws: 400, naming the parameter that is wrong.
    init(_ query: [String: String]) throws(Problem) {
        guard let goal = query["goal"], !goal.isEmpty else {
            throw Problem(.badRequest, "the query parameter `goal` is required")
        }
        self.goal = Identifier(goal)
        baseline = query["baseline"].map { Identifier($0) }
        if let text = query["confidence"] {
            guard let number = Double(text), (0.5...0.9999).contains(number) else {
                throw Problem(.badRequest, "`confidence` must be a number from 0.5 to 0.9999; got '\(text)'")
            }
            confidence = number
        }
        if let text = query["sequential_tuning"] {
            guard let number = Double(text), (1...1e9).contains(number) else {
                throw Problem(.badRequest, "`sequential_tuning` must be a number of users from 1 to 1e9; got '\(text)'")
            }
            tuning = number
        }
        if let text = query["format"] {
            guard let known = Format(rawValue: text) else {
                throw Problem(.badRequest, "`format` must be 'json' or 'csv'; got '\(text)'")
            }
            format = known
        }
    }

    static let parameters = ["goal", "baseline", "confidence", "sequential_tuning", "format"]
}

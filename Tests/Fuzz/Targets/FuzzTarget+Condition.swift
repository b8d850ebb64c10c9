import JSON
import TestSupport

@testable import Bucketing

extension FuzzTarget {
    /// Whatever stands in a condition can be asked of every user, and the opposite has the opposite answer.
    static let condition = FuzzTarget(name: "condition") { bytes in
        guard let value = try? JSONParser(maximumDepth: 64).parse(bytes) else { return }
        let condition = Condition(audience: value)
        let opposite = Condition(audience: ["not", value])
        var random = Cuts.generator(for: bytes)
        for user in User.some(attributes: ["a", "b", "c"], using: &random) {
            var reasons = Reasons(.full)
            let answer = condition.evaluate(for: user, &reasons)
            try expectSame(opposite.evaluate(for: user, &reasons), answer.map { !$0 }, "the opposite")
        }
    }
}

import Definitions
import DefinitionsTestSupport
import HoldfastCore
import JSON
import Testing

/// What a request for a sample size may be. What is missing beside what was observed, the tests of the API say.
@Suite struct SampleSizeRequestTests {
    static let wrong: [(body: JSONValue, places: [String], text: String)] = [
        ([], [""], "a plan must be an object; got an array"),
        (["goal": "buy", "why": 1], ["/why"], "a plan must have no members but `goal`, `kind`, `metric`"),
        (["goal": "buy", "metric": "orders"], ["/metric"], "`goal` and `metric` must not be given together"),
        (["kind": "total"], ["/kind"], "`kind` must be given with `goal` only"),
        (["goal": "buy", "kind": "mean"], ["/kind"], "`kind` must be 'conversion' or 'total'; got 'mean'"),
        (["minimum_effect": 0], ["/minimum_effect"], "`minimum_effect` must be at least 0.0001 in magnitude"),
        (["minimum_effect": "a"], ["/minimum_effect"], "`minimum_effect` must be a number from -1.0 to 10.0"),
        (
            ["minimum_effect": 0.1, "margin": 0.1], ["/margin"],
            "`margin` and `minimum_effect` must not be given together"
        ),
        (["alpha": 0.9, "power": 0.1], ["/alpha", "/power"], "`alpha` must be a number from 0.0001 to 0.5"),
        (["standard_deviation": 0], ["/standard_deviation"], "`standard_deviation` must be a number from"),
        (["users_per_day": -1, "days": -1], ["/users_per_day", "/days"], "`users_per_day` must be a number from"),
        (
            ["days": 1, "until": "2026-01-31T12:00:00Z"], ["/until"],
            "`days` and `until` must not be given together"
        ),
    ]

    @Test(arguments: wrong)
    func `A wrong request is refused with the places of what is wrong`(body: JSONValue, places: [String], text: String)
        throws
    {
        let refusal = try #require(throws: CoreError.self) { try SampleSizeRequest(body) }
        #expect(refusal.places == places, "\(refusal)")
        #expect((refusal.faults.first?.reason ?? refusal.detail).hasPrefix(text), "\(refusal)")
    }
}

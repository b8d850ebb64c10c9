import Bucketing
import JSON
import TestSupport

extension User {
    /// Values that conditions compare with, of every type and at the edges.
    static let values: [JSONValue] = [
        nil, true, false, 0, -1, 1, 9_007_199_254_740_993, .integer(.max), .integer(.min), 0.5, -0.0, 1e308, "", "a",
        "1.2.3", "1.2.3-beta+7", "99999999999999999999.1", "..", "e\u{301}", [], ["a"], [:],
    ]

    /// Users with random values for the attributes that a datafile names.
    static func some(of datafile: Datafile, using random: inout SeededGenerator) -> [User] {
        some(attributes: datafile.attributes.map(\.key.string), using: &random)
    }

    static func some(attributes names: [String], using random: inout SeededGenerator) -> [User] {
        (0..<4).map { number in
            var attributes = JSONObject()
            for name in names + ["$opt_bucketing_id"] where Int.random(in: 0..<4, using: &random) > 0 {
                attributes[name] = values.randomElement(using: &random)
            }
            return User(id: Identifier("user\(number)"), attributes: attributes, qualifiedSegments: ["a", ""])
        }
    }
}

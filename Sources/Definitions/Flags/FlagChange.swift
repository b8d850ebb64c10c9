import Bucketing
public import JSON

/// The body of `PUT /v1/flags/{key}`. Members that it lacks keep their values.
///
/// ``FlagView`` lists the members; ``apply(to:)`` applies them to a flag. An example:
///
/// `{"type":"string","variations":[{"key":"short","value":"Hi"},…],"otherwise":"short","rules":[{"audience":[…],
/// "variation":"long"},{"experiment":{"weights":{"short":1,"long":1},"traffic":50}}],"enabled":true}`
public struct FlagChange: ElementChange {
    public let key: String
    let given: Given<FlagView>

    /// - Throws: 400 if the value is not an object; 422 with every wrong member.
    public init(_ value: JSONValue, key: String) throws(CoreError) {
        self.key = key
        given = try FlagView.members.read(value, key: key)
    }

    /// The type of the values; `nil` if the body lacks it.
    var type: Variable.Kind? { given.value("type", \.type) ?? nil }
    /// The variations with their values; `nil` if the body lacks them.
    var variations: [FlagDefinition.Variation]? { given.value("variations", \.variations) }
    /// The rules, which replace all former ones; `nil` if the body lacks them.
    var rules: [FlagView.Rule]? { given.value("rules", \.rules) }
    /// The key of the variation of users to whom no rule applies; `nil` if the body lacks it.
    var otherwise: Identifier? { given.value("otherwise", \.otherwise) ?? nil }

    public var audiences: [(conditions: JSONValue, place: JSONPointer)] {
        (rules ?? []).enumerated().compactMap { index, rule in
            let place = JSONPointer().appending("rules").appending(index).appending("audience")
            return rule.audience.map { ($0, place) }
        }
    }
}

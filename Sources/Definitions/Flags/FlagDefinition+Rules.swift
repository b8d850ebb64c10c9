import Bucketing
import JSON

extension FlagDefinition.Rules {
    /// Reads the rules from the annotations of a flag in the datafile.
    ///
    /// - Returns: `nil` for the annotations of a flag that was not defined over the API.
    init?(_ annotations: JSONObject) {
        guard let type = annotations["type"]?.string.flatMap(Variable.Kind.init(rawValue:)),
            annotations["variations"]?.array != nil
        else { return nil }
        self.type = type
        otherwise = annotations.identifier("otherwise") ?? ""
        variations = annotations.objects("variations").compactMap { object in
            object.identifier("key").map { FlagDefinition.Variation(key: $0, value: object["value"] ?? .null) }
        }
        rules = annotations.objects("rules").compactMap { rule in
            rule.identifier("key").map { key in
                FlagDefinition.Rule(
                    key: key, audience: rule["audience"],
                    delivery: rule.identifier("variation").map {
                        FlagDefinition.Delivery(variation: $0, traffic: rule["traffic"]?.double ?? 100)
                    })
            }
        }
    }

    /// Writes the rules to the annotations of a flag in the datafile.
    func write(to annotations: inout JSONObject) {
        annotations["type"] = .string(type.rawValue)
        annotations["variations"] = variationsJSON
        annotations["rules"] = .array(
            rules.map { rule in
                var object = JSONObject()
                object["key"] = JSONValue(rule.key)
                object["audience"] = rule.audience
                if let delivery = rule.delivery {
                    object["variation"] = JSONValue(delivery.variation)
                    object["traffic"] = .shortest(delivery.traffic)
                }
                return .object(object)
            })
        annotations["otherwise"] = JSONValue(otherwise)
    }

    var variationsJSON: JSONValue { .array(variations.map { ["key": JSONValue($0.key), "value": $0.value] }) }

    /// The default value of the flag's variable: the value that SDKs give to users without a variation.
    ///
    /// For a boolean flag it must be `false`. A variation with the value `false` is not enabled, so that `enabled` in
    /// the decision of an SDK equals the value; and users of a variation that is not enabled get the default value.
    var defaultText: String {
        type == .boolean ? "false" : variations.first { $0.key == otherwise }.map { Self.text(of: $0.value) } ?? ""
    }

    /// Returns a value as the text that datafiles have.
    static func text(of value: JSONValue) -> String {
        value.string ?? String(decoding: value.encoded(), as: UTF8.self)
    }
}

extension Variable.Kind {
    /// Whether a value has this type. JSON values are objects and arrays, as all SDKs can read these.
    func admits(_ value: JSONValue) -> Bool {
        switch self {
        case .boolean: value.bool != nil
        case .string: value.string != nil
        case .integer: value.integer != nil
        case .double: value.double != nil
        case .json: value.object != nil || value.array != nil
        }
    }

    /// Says what a value of this type must be, and what was found.
    func refusal(of value: JSONValue) -> String {
        // A number is quoted: "got a number" would not explain what is wrong with 1.5 where a whole number is required.
        let found = value.double == nil ? value.kind : String(decoding: value.encoded(), as: UTF8.self)
        return "the value of a flag of the type \(rawValue) must be \(name); got \(found)"
    }

    private var name: String {
        switch self {
        case .boolean: "true or false"
        case .string: "a string"
        case .integer: "a whole number of 64 bits, without a fraction"
        case .double: "a number"
        case .json: "an object or an array"
        }
    }

    /// Returns the variable `value` of a flag in the format of a datafile.
    func variable(id: String, defaultText: String) -> JSONValue {
        var variable = JSONObject()
        variable["id"] = .string(id)
        variable["key"] = "value"
        // Optimizely writes a JSON variable as a string with a subtype.
        variable["type"] = self == .json ? "string" : .string(rawValue)
        if self == .json { variable["subType"] = "json" }
        variable["defaultValue"] = .string(defaultText)
        return .object(variable)
    }
}

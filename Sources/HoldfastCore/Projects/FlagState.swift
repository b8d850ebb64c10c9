import Bucketing
import JSON

/// A flag of the API as its annotations keep it: complete, and independent of how the datafile expresses it.
struct FlagState {
    struct Rule {
        var key: String
        /// `nil` for everybody.
        var audience: JSONValue?
        /// The audience as SDKs know it.
        var datafileAudience: JSONValue? { audience.map(ConditionDialect.datafileForm) }
        /// `nil` for an experiment, whose weights and traffic the experiment itself has.
        var delivery: (variation: String, traffic: Double)?
    }

    let key: String
    var type: Variable.Kind
    var isEnabled = true
    var description = ""
    var tags: [String] = []
    var variations: [FlagDefinition.Variation] = []
    var rules: [Rule] = []
    var otherwise = ""

    init(key: String, type: Variable.Kind) {
        self.key = key
        self.type = type
    }

    /// - Returns: `nil` for a flag that was not defined over the API.
    init?(_ flag: JSONObject) {
        guard let annotations = flag[Annotations.member]?.object, let key = flag["key"]?.string else { return nil }
        self.init(annotations: annotations, key: key)
    }

    /// - Returns: `nil` for the annotations of a flag that was not defined over the API.
    init?(annotations: JSONObject, key: String) {
        guard let type = annotations["type"]?.string.flatMap(Variable.Kind.init(rawValue:)),
            let variations = annotations["variations"]?.array
        else { return nil }
        self.init(key: key, type: type)
        isEnabled = annotations["off"] == nil
        description = annotations["description"]?.string ?? ""
        tags = (annotations["tags"]?.array ?? []).compactMap(\.string)
        otherwise = annotations["otherwise"]?.string ?? ""
        self.variations = variations.compactMap(\.object).compactMap { object in
            object["key"]?.string.map { FlagDefinition.Variation(key: $0, value: object["value"] ?? .null) }
        }
        rules = (annotations["rules"]?.array ?? []).compactMap(\.object).compactMap { rule in
            guard let key = rule["key"]?.string else { return nil }
            let variation = rule["variation"]?.string
            return Rule(
                key: key, audience: rule["audience"],
                delivery: variation.map { ($0, rule["traffic"]?.double ?? 100) })
        }
    }

    /// The annotations of the flag, without whether it is off.
    var annotations: JSONObject {
        var object = JSONObject()
        object["type"] = .string(type.rawValue)
        object["description"] = description.isEmpty ? nil : .string(description)
        object["tags"] = .array(tags.map { .string($0) })
        object["variations"] = .array(variations.map { ["key": .string($0.key), "value": $0.value] })
        object["rules"] = .array(
            rules.map { rule in
                var object = JSONObject()
                object["key"] = .string(rule.key)
                object["audience"] = rule.audience
                if let delivery = rule.delivery {
                    object["variation"] = .string(delivery.variation)
                    object["traffic"] = .shortest(delivery.traffic)
                }
                return .object(object)
            })
        object["otherwise"] = .string(otherwise)
        return object
    }

    // MARK: Values

    /// The text of a value as datafiles have it.
    func text(of value: JSONValue) -> String {
        value.string ?? String(decoding: value.encoded(), as: UTF8.self)
    }

    /// The value of a flag that is off: SDKs give it to users without a variation.
    ///
    /// A boolean flag is on or off like its value, so that `enabled` in an SDK's decision is the flag's value. Then the
    /// value that is off must be the default, because SDKs give the default where a variation is not enabled.
    var defaultText: String {
        if type == .boolean { return "false" }
        return variations.first { $0.key == otherwise }.map { text(of: $0.value) } ?? ""
    }

    /// Gives a variation in the datafile the state and the value of the flag's variation of that key.
    func withValue(_ variation: JSONObject) -> JSONObject {
        guard let value = variations.first(where: { .string($0.key) == variation["key"] })?.value else {
            return variation
        }
        var variation = variation
        variation["featureEnabled"] = .bool(type != .boolean || value == true)
        variation["variables"] = [["id": .string(variableID), "value": .string(text(of: value))]]
        return variation
    }

    /// Gives the variations of an experiment in the datafile their values, and marks it as a rule of the flag.
    func giveValues(toExperiment key: Identifier, in editor: inout DatafileEditor) {
        guard var experiment = editor.experiment(key: key) else { return }
        experiment["variations"] = .array(
            (experiment["variations"]?.array ?? []).compactMap(\.object).map { .object(withValue($0)) })
        var annotations = experiment[Annotations.member]?.object ?? JSONObject()
        annotations["flag"] = .string(self.key)
        annotations["served"] = nil
        experiment[Annotations.member] = .object(annotations)
        editor.setExperiment(experiment)
    }

    // MARK: Ids, which depend on the keys only

    var variableID: String { DerivedID.of("variable/\(key)") }
    var rolloutID: String { DerivedID.of("rollout/\(key)") }

    func ruleID(_ ruleKey: String) -> String { DerivedID.of("rule/\(key)/\(ruleKey)") }
}

extension ExperimentDefinition {
    /// Returns the flag that has the experiment as one of its rules; `nil` if it is in none that the API made.
    ///
    /// - Throws: 409 if the definition changes what the flag defines.
    func flagOfRule(in editor: DatafileEditor) throws(CoreError) -> FlagState? {
        guard let experiment = editor.experiment(key: Identifier(key)), let id = experiment["id"] else { return nil }
        let flags = editor.elements(of: .flags).filter { $0["experimentIds"]?.array?.contains(id) ?? false }
        if status != nil, let flag = flags.first(where: { $0[Annotations.member]?.object?["off"] != nil }) {
            throw CoreError(
                .conflict, "`status` must stay while the flag '\(flag["key"]?.string ?? "")' is not enabled",
                at: ["status"])
        }
        guard let flag = flags.lazy.compactMap(FlagState.init).first else { return nil }
        if audience != nil {
            throw CoreError(.conflict, "`audience` must be changed in the flag '\(flag.key)'", at: ["audience"])
        }
        let known = Set(flag.variations.map { Identifier($0.key) })
        for (index, variation) in (variations ?? []).enumerated() where !known.contains(Identifier(variation.key)) {
            throw CoreError(
                .conflict, "a variation must be one of the flag '\(flag.key)'; got '\(variation.key)'",
                at: JSONPointer().appending("variations").appending(index))
        }
        return flag
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
        // The kind would say of 1.5, and of a number that is too large, only that it is one.
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

    /// The variable of a flag in a datafile.
    func variable(id: String, defaultText: String) -> JSONValue {
        // As Optimizely writes it.
        if self == .json {
            return [
                "id": .string(id), "key": "value", "type": "string", "subType": "json",
                "defaultValue": .string(defaultText),
            ]
        }
        return [
            "id": .string(id), "key": "value", "type": .string(rawValue), "defaultValue": .string(defaultText),
        ]
    }
}

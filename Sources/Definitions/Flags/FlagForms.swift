import Bucketing
import JSON

// The forms of the members of a flag; see ``FlagView/members``.

extension Form where Value == [FlagDefinition.Variation] {
    /// The variations with their values: `[{"key":"short","value":"Hi"}]`. The values are checked against the type here
    /// if the body has it, and otherwise when the change is applied to the flag.
    static var flagVariations: Self {
        Form(
            schema: [
                "type": "array", "minItems": 1, "maxItems": .integer(Int64(ExperimentChange.variationLimit)),
                "items": [
                    "type": "object", "additionalProperties": false, "required": ["key", "value"],
                    "properties": [
                        "key": ["type": "string", "minLength": 1, "maxLength": 255],
                        "value": ["description": "A value of the flag's type; for `json` an object or an array."],
                        "last_evaluated_on": ignored, "last_exposed_on": ignored,
                    ],
                ],
            ],
            // Responses also show when each was last used, so their schema is written in `openapi.json`.
            shown: .null,
            read: { given, faults in
                let type = given.object["type"]?.string.flatMap { Variable.Kind(rawValue: $0) }
                return faults.flagVariations(given.object, of: type, at: given.owner)
            },
            write: { .array($0.map { ["key": JSONValue($0.key), "value": $0.value] }) })
    }
}

private let ignored: JSONValue = ["description": "Ignored, so that what `GET` returns can be sent back."]

extension Form where Value == Identifier {
    /// The key of a variation. If the body has variations, it must be one of them.
    static var otherwise: Self {
        Form(
            schema: ["type": "string"],
            read: { given, faults in
                guard let key = faults.text(given).map({ Identifier($0) }) else { return nil }
                if let known = given.variationKeys, !known.contains(key) {
                    faults.add(FlagRules.unknownOtherwise(key, known), at: given.place)
                }
                return key
            },
            write: { JSONValue($0) })
    }
}

extension Form where Value == [FlagView.Rule] {
    /// The rules, each a delivery or an experiment. If the body has variations, the rules must name these.
    static var rules: Self {
        Form(
            schema: [
                "type": "array", "maxItems": .integer(Int64(FlagRules.limit)),
                "items": ["$ref": "#/components/schemas/FlagRule"],
            ],
            read: { given, faults in
                let list = faults.list(given.object, given.name, 0...FlagRules.limit, at: given.owner)
                let known = given.variationKeys
                return list.map { list in
                    list.compactMap { value, place in
                        let rule = faults.rule(value, at: place)
                        if let known { rule?.check(known, at: place, &faults) }
                        return rule
                    }
                }
            },
            write: { rules in .array(rules.map { .object($0.json()) }) },
            file: { rules in rules.isEmpty ? JSONValue?.none : .array(rules.map { .object($0.file) }) })
    }
}

extension GivenMember {
    /// The keys of the variations in the same body. `nil` if the body has no variations, or if one of them is wrong,
    /// because then a reference to a variation cannot be judged.
    fileprivate var variationKeys: Set<Identifier>? {
        var ignored = FaultCollector()
        let variations = ignored.flagVariations(object, of: nil, at: owner)
        guard let variations, variations.count == object["variations"]?.array?.count else { return nil }
        return Set(variations.map(\.key))
    }
}

/// The limit and the error messages for the rules of flags.
enum FlagRules {
    /// The maximum number of rules of a flag.
    static let limit = 250

    static func unknownOtherwise(_ key: Identifier, _ known: Set<Identifier>) -> String {
        "`otherwise` must be a variation; got '\(key)'" + Spelling.hint(for: key, among: known.sorted())
    }

    static func unknownVariation(_ key: Identifier, _ known: Set<Identifier>) -> String {
        "a rule must have variations of the flag; got '\(key)'" + Spelling.hint(for: key, among: known.sorted())
    }
}

// MARK: - A rule

extension FlagView.Rule {
    /// Returns the keys of the variations that the rule names, each with its location.
    ///
    /// - Parameter place: the location of the rule.
    func namedVariations(at place: JSONPointer) -> [(key: Identifier, place: JSONPointer)] {
        switch choice {
        case .delivery(let variation, _): return variation.map { [($0, place.appending("variation"))] } ?? []
        case .experiment(let experiment):
            let weights = place.appending("experiment").appending("weights")
            return (experiment.value("weights", \.variations) ?? []).map { ($0.key, weights.appending($0.key.string)) }
        case nil: return []
        }
    }

    /// Adds a fault for each variation that the rule names and the flag does not have.
    fileprivate func check(_ known: Set<Identifier>, at place: JSONPointer, _ faults: inout FaultCollector) {
        for (variation, place) in namedVariations(at: place) where !known.contains(variation) {
            faults.add(FlagRules.unknownVariation(variation, known), at: place)
        }
    }

    /// Returns the rule as `GET` shows it.
    fileprivate func json() -> JSONObject {
        json { FlagDefinition.experimentMembers.show($0.draft, in: &$1) }
    }

    /// The rule in a file: without an audience that admits everybody, and with those members of an experiment that are
    /// given.
    fileprivate var file: JSONObject {
        var object = json { FlagDefinition.experimentMembers.writeFile($0, to: &$1) }
        if object["audience"]?.isNull == true { object["audience"] = nil }
        return object
    }

    private func json(_ write: (Given<ExperimentView>, inout JSONObject) -> Void) -> JSONObject {
        var object = JSONObject()
        object["key"] = key.map { JSONValue($0) }
        object["audience"] = audience ?? .null
        switch choice {
        case .delivery(let variation, let traffic):
            object["variation"] = variation.map { JSONValue($0) } ?? .null
            object["traffic"] = .shortest(traffic)
        case .experiment(let given):
            var experiment = JSONObject()
            write(given, &experiment)
            object["experiment"] = .object(experiment)
        case nil: break
        }
        return object
    }
}

extension FaultCollector {
    /// Reads the member `variations` of a flag.
    ///
    /// - Parameter type: the type of the flag, if the body has it; `nil` to leave the values unchecked.
    fileprivate mutating func flagVariations(
        _ object: JSONObject, of type: Variable.Kind?, at place: JSONPointer
    ) -> [FlagDefinition.Variation]? {
        let counts = 1...ExperimentChange.variationLimit
        guard let list = list(object, "variations", counts, at: place) else { return nil }
        var variations: [FlagDefinition.Variation] = []
        var keys: Set<Identifier> = []
        for (value, place) in list {
            guard let element = self.object(value, "a variation", knowing: ["key", "value"], at: place) else {
                continue
            }
            if let value = element["value"] {
                if let type, !type.admits(value) { add(type.refusal(of: value), at: place.appending("value")) }
            } else {
                add("`value` is required", at: place.appending("value"))
            }
            guard let key = collect(try Self.key(of: element, at: place)) else { continue }
            if !keys.insert(key).inserted {
                add("the keys of variations must differ; got '\(key)' twice", at: place.appending("key"))
            }
            variations.append(FlagDefinition.Variation(key: key, value: element["value"] ?? .null))
        }
        return variations
    }

    private static func key(of object: JSONObject, at place: JSONPointer) throws(CoreError) -> Identifier {
        let text = try object.text("key", in: place)
        return Identifier(try NameRule.checkKey(text, at: place.appending("key")))
    }

    /// Reads a rule: a delivery (`variation`, `traffic`) or an experiment (`experiment`), for the users of an audience.
    fileprivate mutating func rule(_ value: JSONValue, at place: JSONPointer) -> FlagView.Rule? {
        let members = ["key", "audience", "variation", "traffic", "experiment"]
        guard let object = object(value, "a rule", knowing: members, at: place) else { return nil }
        var rule = FlagView.Rule()
        if object["key"].map({ !$0.isNull }) ?? false { rule.key = collect(try Self.key(of: object, at: place)) }
        if let audience = object["audience"], !audience.isNull {
            rule.audience = audience
            for fault in AudienceRules.faults(in: audience, at: place.appending("audience")) {
                add(fault.reason, at: fault.pointer)
            }
        }
        let variation = collect(try object.optionalText("variation", in: place))
        let experiment = object["experiment"]
        guard (object["variation"] != nil) != (experiment != nil) else {
            add("a rule must have either `variation` or `experiment`", at: place)
            return nil
        }
        if let experiment {
            rule.choice = self.experiment(experiment, of: object, at: place)
        } else {
            rule.choice = delivery(of: variation.map { Identifier($0) }, object, at: place)
        }
        return rule.choice == nil ? nil : rule
    }

    /// Reads the experiment of a rule.
    private mutating func experiment(
        _ value: JSONValue, of rule: JSONObject, at place: JSONPointer
    ) -> FlagView.Choice? {
        if rule["traffic"] != nil {
            add("`traffic` must be within `experiment`", at: place.appending("traffic"))
        }
        let table = FlagDefinition.experimentMembers
        let place = place.appending("experiment")
        guard let object = table.object(value, at: place, &self) else { return nil }
        return .experiment(table.read(object, at: place, &self))
    }

    /// Reads the delivery of a rule.
    ///
    /// - Parameter variation: the key of the variation; `nil` if it is null or wrong.
    private mutating func delivery(
        of variation: Identifier?, _ rule: JSONObject, at place: JSONPointer
    ) -> FlagView.Choice? {
        guard let variation else {
            if rule["variation"]?.isNull == true {
                add("`variation` must be a string; got null", at: place.appending("variation"))
            }
            return nil
        }
        let traffic = collect(try rule.optionalNumber("traffic", 0...100, in: place)) ?? 100
        return .delivery(variation: variation, traffic: traffic)
    }
}

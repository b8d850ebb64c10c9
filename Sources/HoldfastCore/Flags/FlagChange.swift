import Bucketing
public import Definitions
public import JSON

/// What an admin defines of a flag with `PUT /v1/flags/{key}`; absent members keep their values.
///
/// `{"type":"string","variations":[{"key":"short","value":"Hi"},…],"otherwise":"short","rules":[{"audience":[…],
/// "variation":"long"},{"experiment":{"weights":{"short":1,"long":1},"traffic":50}}],"enabled":true}`
public struct FlagChange: Sendable {
    typealias Variation = FlagDefinition.Variation

    /// A rule; the first one that applies to a user decides.
    struct Rule: Sendable {
        var key: String?
        /// `nil` for everybody.
        var audience: JSONValue?
        var choice: Choice
    }

    enum Choice: Sendable {
        case delivery(FlagDefinition.Delivery)
        /// An experiment; its weights are those of its variations, the baseline first.
        case experiment(ExperimentChange)

        /// Returns the keys of variations that the body names, each with its place.
        ///
        /// - Parameter place: the rule's.
        func namedVariations(at place: JSONPointer) -> [(key: Identifier, place: JSONPointer)] {
            switch self {
            case .delivery(let delivery):
                return [(delivery.variation, place.appending("variation"))]
            case .experiment(let experiment):
                let weights = place.appending("experiment").appending("weights")
                return (experiment.variations ?? []).map { ($0.key, weights.appending($0.key.string)) }
            }
        }
    }

    public let key: String
    var type: Variable.Kind?
    var isEnabled: Bool?
    var variations: [Variation]?
    var rules: [Rule]?
    /// The variation of users to whom no rule applies.
    var otherwise: String?
    var tags: [String]?
    var description: String?

    static let members = ["key", "type", "enabled", "description", "tags", "variations", "rules", "otherwise"]
    static let ruleLimit = 250
    static let longestDescription = 4_096

    /// - Throws: 422 with every wrong member.
    public init(_ value: JSONValue, key: String) throws(CoreError) {
        self.key = key
        guard value.object != nil else {
            throw CoreError(.invalid, "a flag must be an object; got \(value.kind)", at: [])
        }
        var faults = FaultCollector()
        let object =
            faults.object(
                value, "a flag", knowing: Self.members,
                ignoring: ["defined_by", "version", "sdk_key", "revision", "proposals"], at: []) ?? JSONObject()
        if let given = faults.collect(try object.optionalText("key")), !given.utf8.elementsEqual(key.utf8) {
            faults.add("`key` must be the key in the path, '\(key)'; got '\(given)'", at: ["key"])
        }
        if let name = faults.collect(try object.optionalText("type")) {
            type = Variable.Kind(rawValue: name)
            if type == nil {
                let names = Variable.Kind.allCases.map(\.rawValue)
                faults.add(
                    "`type` must be one of \(names.joined(separator: ", ")); got '\(name)'"
                        + Spelling.hint(for: name, among: names), at: ["type"])
            }
        }
        if let value = object["enabled"], !value.isNull {
            isEnabled = value.bool
            if isEnabled == nil { faults.add("`enabled` must be true or false; got \(value.kind)", at: ["enabled"]) }
        }
        description = faults.text(object, "description", atMost: Self.longestDescription)
        tags = faults.tags(object)
        otherwise = faults.collect(try object.optionalText("otherwise"))
        variations = Self.variations(object, type, &faults)
        // What refers to a variation can be judged here if the body has all of them, and each has a key.
        let isWhole = variations != nil && variations?.count == object["variations"]?.array?.count
        let known = isWhole ? variations.map { Set($0.map(\.key)) } : nil
        if let otherwise, let known, !known.contains(Identifier(otherwise)) {
            faults.add(Self.unknownOtherwise(otherwise, known), at: ["otherwise"])
        }
        rules = faults.list(object, "rules", 0...Self.ruleLimit, at: []).map { list in
            list.compactMap { element in
                let rule = Self.rule(element.value, at: element.place, &faults)
                if let rule, let known { Self.check(rule, known, at: element.place, &faults) }
                return rule
            }
        }
        try faults.check()
    }

    /// - Parameter type: the flag's type, if the body has it.
    private static func variations(
        _ object: JSONObject, _ type: Variable.Kind?, _ faults: inout FaultCollector
    ) -> [Variation]? {
        let counts = 1...ExperimentChange.variationLimit
        guard let list = faults.list(object, "variations", counts, at: []) else { return nil }
        var variations: [Variation] = []
        var keys: Set<Identifier> = []
        for (value, place) in list {
            guard let element = faults.object(value, "a variation", knowing: ["key", "value"], at: place) else {
                continue
            }
            if let value = element["value"] {
                if let type, !type.admits(value) { faults.add(type.refusal(of: value), at: place.appending("value")) }
            } else {
                faults.add("`value` is required", at: place.appending("value"))
            }
            guard let key = faults.collect(try key(of: element, at: place)) else { continue }
            if !keys.insert(Identifier(key)).inserted {
                faults.add("the keys of variations must differ; got '\(key)' twice", at: place.appending("key"))
            }
            variations.append(Variation(key: Identifier(key), value: element["value"] ?? .null))
        }
        return variations
    }

    private static func key(of object: JSONObject, at place: JSONPointer) throws(CoreError) -> String {
        try ExperimentChange.checkKey(try object.text("key", in: place), at: place.appending("key"))
    }

    // MARK: Rules

    private static func rule(_ value: JSONValue, at place: JSONPointer, _ faults: inout FaultCollector) -> Rule? {
        let members = ["key", "audience", "variation", "traffic", "experiment"]
        guard let object = faults.object(value, "a rule", knowing: members, at: place) else { return nil }
        var key: String?
        if object["key"].map({ !$0.isNull }) ?? false { key = faults.collect(try Self.key(of: object, at: place)) }
        var audience = object["audience"]
        if audience?.isNull == true { audience = nil }
        if let audience {
            for fault in AudienceRules.faults(in: audience, at: place.appending("audience")) {
                faults.add(fault.reason, at: fault.pointer)
            }
        }
        let variation = faults.collect(try object.optionalText("variation", in: place))
        let experiment = object["experiment"]
        guard (object["variation"] != nil) != (experiment != nil) else {
            faults.add("a rule must have either `variation` or `experiment`", at: place)
            return nil
        }
        if let experiment {
            if object["traffic"] != nil {
                faults.add("`traffic` must be within `experiment`", at: place.appending("traffic"))
            }
            guard let parsed = Self.experiment(experiment, at: place.appending("experiment"), &faults) else {
                return nil
            }
            return Rule(key: key, audience: audience, choice: .experiment(parsed))
        }
        guard let variation else {
            if object["variation"]?.isNull == true {
                faults.add("`variation` must be a string; got null", at: place.appending("variation"))
            }
            return nil
        }
        let traffic = faults.collect(try object.optionalNumber("traffic", 0...100, in: place)) ?? 100
        let delivery = FlagDefinition.Delivery(variation: Identifier(variation), traffic: traffic)
        return Rule(key: key, audience: audience, choice: .delivery(delivery))
    }

    static func unknownOtherwise(_ key: String, _ known: Set<Identifier>) -> String {
        "`otherwise` must be a variation; got '\(key)'" + Spelling.hint(for: Identifier(key), among: known.sorted())
    }

    /// Checks that the variations that a rule names are the flag's.
    private static func check(
        _ rule: Rule, _ known: Set<Identifier>, at place: JSONPointer, _ faults: inout FaultCollector
    ) {
        for (variation, place) in rule.choice.namedVariations(at: place) where !known.contains(variation) {
            faults.add(unknownVariation(variation, known), at: place)
        }
    }

    static func unknownVariation(_ key: Identifier, _ known: Set<Identifier>) -> String {
        "a rule must have variations of the flag; got '\(key)'" + Spelling.hint(for: key, among: known.sorted())
    }

    private static func experiment(
        _ value: JSONValue, at place: JSONPointer, _ faults: inout FaultCollector
    ) -> ExperimentChange? {
        let members = FlagDefinition.experimentMembers
        guard let object = members.object(value, at: place, &faults) else { return nil }
        var experiment = ExperimentChange(key: "", members.read(object, at: place, &faults))
        if experiment.given.has("weights") { experiment.give(experiment.given.draft.variations) }
        return experiment
    }
}

extension FlagDefinition {
    /// What a flag says of an experiment that is one of its rules.
    static let experimentMembers = MemberTable<ExperimentView>(
        "an experiment", blank: ExperimentView(),
        ExperimentView.members["id"] + [Member("weights", \.variations, .weights)]
            + ExperimentView.members["traffic", "status", "enrollment", "group"])
}

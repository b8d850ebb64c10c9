import Bucketing
import JSON

// The forms of the members of an experiment; see ``ExperimentView/members``.

extension Form where Value == Identifier {
    /// The id of an experiment.
    static var experimentID: Self {
        Form(
            schema: ["$ref": "#/components/schemas/ExperimentID"], shown: ["type": "string"],
            read: { $1.experimentID($0) },
            write: { JSONValue($0) })
    }
}

extension FaultCollector {
    fileprivate mutating func experimentID(_ given: GivenMember) -> Identifier? {
        guard let text = text(given) else { return nil }
        return collect(try NameRule.checkExperimentID(text, at: given.place))
    }
}

// MARK: - Variations

extension Form where Value == [ExperimentView.Variation] {
    /// `["control","new"]`, or `[{"key":"control","weight":3},{"key":"new","weight":1}]`. Without weights the
    /// variations get equal shares.
    static var variations: Self {
        Form(
            schema: [
                "type": "array", "minItems": 1, "maxItems": .integer(Int64(ExperimentChange.variationLimit)),
                "items": [
                    "oneOf": [
                        ["type": "string"],
                        [
                            "type": "object", "required": ["key"], "additionalProperties": false,
                            "properties": [
                                "key": ["type": "string"], "id": ["$ref": "#/components/schemas/VariationID"],
                                "weight": [
                                    "type": ["number", "null"], "minimum": 0,
                                    "maximum": .shortest(ExperimentChange.greatestWeight),
                                ],
                                "share": ["description": "Ignored, so that what `GET` returns can be sent back."],
                            ],
                        ],
                    ]
                ],
            ],
            shown: [
                "type": "array",
                "items": [
                    "type": "object", "required": ["id", "key", "weight", "share"],
                    "properties": [
                        "id": ["type": "string"], "key": ["type": "string"],
                        "weight": ["type": "number", "minimum": 0],
                        "share": [
                            "type": "number", "minimum": 0, "maximum": 100,
                            "description": "The percentage of all users who get the variation.",
                        ],
                    ],
                ],
            ],
            read: { $1.variations($0) },
            write: { .array($0.map(\.json)) },
            file: { .array($0.map(\.file)) })
    }

    /// The form in a rule of a flag: an object with the weight of each variation, the baseline first, such as
    /// `{"control":3,"new":1}`.
    static var weights: Self {
        Form(
            schema: [
                "type": "object", "minProperties": 1,
                "additionalProperties": [
                    "type": "number", "minimum": 0, "maximum": .shortest(ExperimentChange.greatestWeight),
                ],
            ],
            read: { $1.weights($0) },
            write: { variations in
                var weights = JSONObject()
                for variation in variations { weights[variation.key.string] = .shortest(variation.weight ?? 0) }
                return .object(weights)
            })
    }
}

extension FaultCollector {
    fileprivate mutating func variations(_ given: GivenMember) -> [ExperimentView.Variation]? {
        let limit = ExperimentChange.variationLimit
        guard let list = given.value.array, !list.isEmpty else {
            let found = given.value.array == nil ? given.value.kind : "an empty one"
            add("`variations` must be an array of at least one variation; got \(found)", at: given.place)
            return nil
        }
        guard list.count <= limit else {
            add("`variations` must have at most \(limit) elements; got \(list.count)", at: given.place)
            return nil
        }
        var variations: [ExperimentView.Variation] = []
        var keys: Set<Identifier> = []
        for (index, element) in list.enumerated() {
            let place = given.place.appending(index)
            guard let variation = collect(try ExperimentView.Variation(element, at: place)) else { continue }
            if !keys.insert(variation.key).inserted {
                add("the keys of variations must differ; got '\(variation.key)' twice", at: place)
            }
            variations.append(variation)
        }
        // A variation with a fault may or may not have a weight, so the weights are checked only without faults.
        if variations.count == list.count { checkWeights(of: variations, at: given.place) }
        return variations
    }

    private mutating func checkWeights(of variations: [ExperimentView.Variation], at place: JSONPointer) {
        let weights = variations.compactMap(\.weight)
        guard !weights.isEmpty else { return }
        if weights.count < variations.count {
            add(
                "either every variation must have a weight or none; got \(weights.count) of \(variations.count)",
                at: place)
        } else {
            checkSum(of: weights, at: place)
        }
    }

    fileprivate mutating func weights(_ given: GivenMember) -> [ExperimentView.Variation]? {
        guard let members = given.value.object, !members.isEmpty else {
            let found = given.value.object == nil ? given.value.kind : "an empty one"
            add("`weights` must be an object with a number for each variation; got \(found)", at: given.place)
            return nil
        }
        var variations: [ExperimentView.Variation] = []
        for member in members {
            let bounds = 0...ExperimentChange.greatestWeight
            if member.value.isNull {
                add("a weight must be a number; got null", at: given.place.appending(member.key))
            } else if let weight = collect(try members.optionalNumber(member.key, bounds, in: given.place)) {
                variations.append(ExperimentView.Variation(key: Identifier(member.key), weight: weight))
            }
        }
        if variations.count == members.count { checkSum(of: variations.compactMap(\.weight), at: given.place) }
        return variations
    }

    private mutating func checkSum(of weights: [Double], at place: JSONPointer) {
        if !weights.contains(where: { $0 > 0 }) {
            add("at least one weight must be greater than 0; to enroll nobody, set `traffic` to 0", at: place)
        }
    }
}

extension ExperimentView.Variation {
    /// Reads a variation: a key, or an object with a key.
    fileprivate init(_ value: JSONValue, at place: JSONPointer) throws(CoreError) {
        if let key = value.string {
            self.init(key: Identifier(try NameRule.checkKey(key, at: place)))
            return
        }
        guard value.object != nil else {
            throw CoreError(.invalid, "a variation must be a key or an object; got \(value.kind)", at: place)
        }
        let object = try value.object("a variation", knowing: ["key", "id", "weight"], ignoring: ["share"], at: place)
        let key = try NameRule.checkKey(try object.text("key", in: place), at: place.appending("key"))
        let id = try object.optionalText("id", in: place)
        if let id, !NameRule.isVariationID(id.utf8) {
            throw CoreError(
                .invalid, "`id` must be 1 to 255 bytes long; got \(id.utf8.count)", at: place.appending("id"))
        }
        let weight = try object.optionalNumber("weight", 0...ExperimentChange.greatestWeight, in: place)
        self.init(key: Identifier(key), id: id.map { Identifier($0) }, weight: weight)
    }

    /// The variation in a response.
    fileprivate var json: JSONValue {
        var object = JSONObject()
        object["id"] = id.map { JSONValue($0) }
        object["key"] = JSONValue(key)
        object["weight"] = weight.map { .shortest($0) }
        object["share"] = share.map { .shortest($0) }
        return .object(object)
    }

    /// The variation in a file. The key comes first, because people read it.
    fileprivate var file: JSONValue {
        var object = JSONObject()
        object["key"] = JSONValue(key)
        object["id"] = id.map { JSONValue($0) }
        object["weight"] = weight.map { .shortest($0) }
        return .object(object)
    }
}

// MARK: - Schedule, ramp, bandit and plan

extension Form where Value == ExperimentSchedule? {
    static var schedule: Self {
        Form(
            read: { ExperimentSchedule($0.value, at: $0.place, &$1) }, write: { $0?.json },
            file: { $0.map { .object(($0.json.object ?? JSONObject()).keeping(["start_at", "end_at"])) } },
            stored: { $0.object.map { ExperimentSchedule($0) } })
    }
}

extension Form where Value == Ramp? {
    static var ramp: Self {
        Form(
            read: { given, faults in
                let ramp = Ramp(given.value, at: given.place, &faults)
                if let traffic = given.object["traffic"]?.double, (0...100).contains(traffic) {
                    faults.add("`traffic` must be left out, because the `ramp` sets it", at: ["traffic"])
                }
                return ramp
            },
            write: { $0?.json },
            file: { $0.map { .object(($0.json.object ?? JSONObject()).keeping(["steps", "on_alarm", "keep"])) } },
            stored: { $0.object.flatMap { Ramp(stored: $0) } })
    }
}

extension Form where Value == Bandit? {
    static var bandit: Self {
        Form(
            read: { Bandit($0.value, at: $0.place, &$1) }, write: { $0?.json }, file: { $0?.definition },
            stored: { $0.object.flatMap { Bandit(stored: $0) } })
    }
}

extension Form where Value == DecisionRule {
    /// The form in responses, files and the store; requests are read by ``DecisionRule/members``. Files leave out what
    /// the server recorded at the start.
    static var plan: Self {
        Form(
            read: { _, _ in nil }, write: { $0.json },
            file: { $0.definition.isEmpty ? JSONValue?.none : .object($0.definition) },
            stored: { DecisionRule(stored: $0) })
    }
}

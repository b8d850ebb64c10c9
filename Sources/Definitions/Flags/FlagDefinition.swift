package import Bucketing
package import JSON

/// A flag of a project.
package struct FlagDefinition: KeyedDefinition {
    package struct Variation: Sendable, Equatable {
        package var key: Identifier
        package var value: JSONValue
    }

    /// A targeted rollout of a variation to a percentage of the audience.
    package struct Delivery: Sendable, Equatable {
        package var variation: Identifier
        package var traffic: Double
    }

    /// A rule; the first one that applies to a user decides.
    package struct Rule: Sendable, Equatable {
        package var key: Identifier
        /// `nil` for everybody.
        package var audience: JSONValue?
        /// `nil` for an experiment, whose weights and traffic the experiment itself has.
        package var delivery: Delivery?

        /// The audience as SDKs know it.
        var datafileAudience: JSONValue? { audience.map(ConditionDialect.datafileForm) }
    }

    /// What a flag of the API delivers.
    package struct Rules: Sendable, Equatable {
        package var type: Variable.Kind
        package var variations: [Variation] = []
        package var rules: [Rule] = []
        /// The variation of users to whom no rule applies.
        package var otherwise: Identifier = ""
    }

    package enum Content: Sendable, Equatable {
        case rules(Rules)
        /// The flag serves the experiment of the same key.
        case experiment
        /// A datafile brought the flag.
        case datafile(rolloutID: String, experimentIDs: [Identifier])
    }

    package let key: Identifier
    /// A flag that is off has no deliveries in the datafile, and its running experiments are paused there, so that each
    /// SDK gives the default values.
    package var isEnabled = true
    package var description = ""
    /// Labels by which clients choose flags; `nil` if none were given.
    package var tags: [Identifier]?
    var shownTags: [Identifier] {
        get { tags ?? [] }
        set { tags = newValue }
    }
    /// The revision of the datafile in which the flag or one of its experiments last changed.
    package var version: Int64?
    package var content: Content
    /// The flag as the datafile has it. Members that are not defined here stay.
    package var source = JSONObject()

    package var listKey: Identifier { key }

    /// The experiments of rules, by their keys, or those of a datafile, by their ids.
    package var names: [Identifier] {
        switch content {
        case .rules(let content): content.rules.lazy.filter { $0.delivery == nil }.map(\.key)
        case .experiment: []
        case .datafile(_, let ids): ids
        }
    }

    package init(key: Identifier, _ content: Content) {
        self.key = key
        self.content = content
    }

    init(_ source: JSONObject) {
        let members = source[Annotations.member]?.object
        let annotations = FlagAnnotations(members)
        let off = members?["off"]?.object
        let content: Content =
            if let rules = members.flatMap(Rules.init) {
                .rules(rules)
            } else if annotations.servesExperiment {
                .experiment
            } else {
                .datafile(
                    rolloutID: (off ?? source)["rolloutId"]?.string ?? "",
                    experimentIDs: source.identifiers("experimentIds"))
            }
        self.init(key: source.identifier("key") ?? "", content)
        isEnabled = off == nil
        if let members {
            var view = FlagView(self)
            FlagView.members.readStored(members, into: &view)
            self = view.definition
        }
        tags = members?["tags"] == nil ? nil : annotations.tags
        version = annotations.version
        self.source = source
    }

    /// The experiments that run again when the flag is on.
    var waitingExperiments: [Identifier] {
        source[Annotations.member]?.object?["off"]?.object?.identifiers("running") ?? []
    }

    /// `nil` for a flag that was not defined over the API.
    package var rules: Rules? {
        if case .rules(let rules) = content { rules } else { nil }
    }

    package func rule(_ key: Identifier) -> Rule? { rules?.rules.first { $0.key == key } }

    /// Whether the datafile has something about the flag that SDKs do not know.
    var isAnnotated: Bool {
        guard case .datafile = content else { return true }
        return !isEnabled || tags != nil || version != nil || FlagView.members.hasStored(FlagView(self))
    }

    /// Returns the flag as SDKs know it.
    ///
    /// - Parameters:
    ///   - experiments: those of the flag. One that is concluded is no part of it, so that decisions need not look at it.
    ///   - hasDeliveries: whether ``rollout(_:)`` has any.
    func json(_ experiments: [ExperimentDefinition], hasDeliveries: Bool) -> JSONObject {
        let rolloutID = hasDeliveries ? rolloutID : ""
        let running = experiments.filter { $0.status == ExperimentStatus.running.rawValue }
        var flag = source
        var annotations = source[Annotations.member]?.object ?? JSONObject()
        flag["id"] = flag["id"] ?? .string(DerivedID.of("flag/\(key)"))
        flag["key"] = JSONValue(key)
        flag["rolloutId"] = .string(isEnabled ? rolloutID : "")
        flag["experimentIds"] = JSONValue(experiments.filter { !$0.isConcluded }.map(\.id))
        switch content {
        case .rules(let rules):
            flag["variables"] = [rules.type.variable(id: variableID, defaultText: rules.defaultText)]
            rules.write(to: &annotations)
        case .experiment:
            flag["variables"] = [Variable.Kind.string.variable(id: variableID, defaultText: "")]
            annotations["experiment"] = true
        case .datafile: break
        }
        FlagView.members.store(FlagView(self), in: &annotations)
        annotations["tags"] = tags.map { JSONValue($0) }
        annotations["off"] =
            isEnabled ? nil : ["rolloutId": .string(rolloutID), "running": JSONValue(running.map(\.id))]
        annotations["version"] = version.map { .integer($0) }
        flag[Annotations.member] = annotations.isEmpty ? nil : .object(annotations)
        return flag
    }

    // MARK: Ids, which depend on the keys only

    var variableID: String { DerivedID.of("variable/\(key)") }

    func ruleID(_ ruleKey: Identifier) -> String { DerivedID.of("rule/\(key)/\(ruleKey)") }

    func audienceID(_ ruleKey: Identifier) -> String { "holdfast\(ruleID(ruleKey))" }

    /// The id of the deliveries; empty if a datafile brought the flag without any.
    var rolloutID: String {
        if case .datafile(let rolloutID, _) = content { rolloutID } else { DerivedID.of("rollout/\(key)") }
    }

    // MARK: Deliveries

    /// The deliveries in the datafile: those of the rules, the winners of concluded experiments and, as the last one, the
    /// variation for everybody else.
    ///
    /// - Parameter experiments: those of the flag.
    /// - Returns: `nil` if there are none.
    func rollout(_ experiments: [ExperimentDefinition]) -> JSONValue? {
        let winners = Dictionary(
            experiments.compactMap { experiment in experiment.winner.map { (experiment.key, $0.key) } },
            uniquingKeysWith: { $1 })
        var deliveries: [JSONValue] = []
        switch content {
        case .datafile: return nil
        case .experiment:
            guard let experiment = experiments.first, let winner = winners[key] else { return nil }
            var delivery = json(Delivery(variation: winner, traffic: 100), id: ruleID(key), key: nil)
            GivenAudience.write(experiment.audience, of: experiment.id, to: &delivery, replacing: experiment.source)
            deliveries.append(.object(delivery))
        case .rules(let content):
            for rule in content.rules {
                let winner = winners[rule.key].map { Delivery(variation: $0, traffic: 100) }
                guard let delivery = rule.delivery ?? winner else { continue }
                // The experiment still has the key of the rule.
                let key = winner == nil ? rule.key.string : nil
                var json = json(delivery, id: ruleID(rule.key), key: key)
                if rule.audience != nil { json["audienceIds"] = [.string(audienceID(rule.key))] }
                json["audienceConditions"] = json["audienceIds"]
                deliveries.append(.object(json))
            }
            // The Agent knows the last rule by this prefix.
            let last = Delivery(variation: content.otherwise, traffic: 100)
            deliveries.append(.object(json(last, id: "default-\(rolloutID)", key: nil)))
        }
        return ["id": .string(rolloutID), "experiments": .array(deliveries)]
    }

    /// A delivery for everybody.
    ///
    /// - Parameter key: by default the id.
    private func json(_ delivery: Delivery, id: String, key: String?) -> JSONObject {
        let variationID = DerivedID.of("\(id)/\(delivery.variation)")
        var variation = JSONObject()
        variation["id"] = .string(variationID)
        variation["key"] = JSONValue(delivery.variation)
        addValue(to: &variation, of: delivery.variation)
        let weights = TrafficAllocation.weights(
            of: [Identifier(variationID)], ratio: [1], traffic: delivery.traffic)
        let json: JSONValue = [
            "id": .string(id), "key": .string(key ?? id), "layerId": .string(rolloutID), "status": "Running",
            "audienceIds": [], "audienceConditions": [], "forcedVariations": [:],
            "variations": [.object(variation)], "trafficAllocation": TrafficAllocation(weights: weights).json,
        ]
        return json.object ?? JSONObject()
    }

    /// Gives a variation in the datafile the state and the value that the flag has for a key.
    func addValue(to variation: inout JSONObject, of key: Identifier) {
        let text: String
        switch content {
        case .datafile: return
        case .experiment:
            variation["featureEnabled"] = true
            text = key.string
        case .rules(let rules):
            guard let value = rules.variations.first(where: { $0.key == key })?.value else { return }
            variation["featureEnabled"] = .bool(rules.type != .boolean || value == true)
            text = Rules.text(of: value)
        }
        variation["variables"] = [["id": .string(variableID), "value": .string(text)]]
    }
}

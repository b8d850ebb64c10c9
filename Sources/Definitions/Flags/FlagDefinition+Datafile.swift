import Bucketing
import JSON

// How a flag is read from a datafile and written to one.
//
// A flag of the API has one variable, `value`. Its rules become experiments and a rollout with deliveries, which SDKs
// decide; the rules themselves are kept in an annotation (``Annotations/member``), so that they can be read again.

extension FlagDefinition {
    /// Reads a flag from a datafile.
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

    /// The ids of the experiments that run again once the flag is turned on.
    var waitingExperiments: [Identifier] {
        source[Annotations.member]?.object?["off"]?.object?.identifiers("running") ?? []
    }

    /// Whether the flag needs an annotation in the datafile. Most flags of an uploaded datafile need none, and stay as
    /// they are.
    var isAnnotated: Bool {
        guard case .datafile = content else { return true }
        return !isEnabled || tags != nil || version != nil || FlagView.members.hasStored(FlagView(self))
    }

    /// Returns the flag in the format of a datafile, which SDKs read.
    ///
    /// - Parameters:
    ///   - experiments: the experiments of the flag. Concluded ones are left out, because decisions need not look at
    ///     them.
    ///   - hasDeliveries: whether ``rollout(_:)`` returns deliveries.
    func json(_ experiments: [ExperimentDefinition], hasDeliveries: Bool) -> JSONObject {
        let usedRolloutID = hasDeliveries ? rolloutID : ""
        let running = experiments.filter { $0.status == ExperimentStatus.running.rawValue }
        var flag = source
        var annotations = source[Annotations.member]?.object ?? JSONObject()
        flag["id"] = flag["id"] ?? .string(DerivedID.of("flag/\(key)"))
        flag["key"] = JSONValue(key)
        flag["rolloutId"] = .string(isEnabled ? usedRolloutID : "")
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
            isEnabled ? nil : ["rolloutId": .string(usedRolloutID), "running": JSONValue(running.map(\.id))]
        annotations["version"] = version.map { .integer($0) }
        flag[Annotations.member] = annotations.isEmpty ? nil : .object(annotations)
        return flag
    }

    // MARK: Ids
    //
    // They depend on the keys only, so that a flag that is deleted and created again has the same ids.

    /// The id of the variable `value`.
    var variableID: String { DerivedID.of("variable/\(key)") }

    /// Returns the id of the delivery that a rule becomes.
    func ruleID(_ ruleKey: Identifier) -> String { DerivedID.of("rule/\(key)/\(ruleKey)") }

    /// Returns the id of the audience that belongs to a rule alone.
    func audienceID(_ ruleKey: Identifier) -> String { "holdfast\(ruleID(ruleKey))" }

    /// The id of the rollout with the flag's deliveries; empty for a flag of an uploaded datafile that has none.
    var rolloutID: String {
        if case .datafile(let rolloutID, _) = content { rolloutID } else { DerivedID.of("rollout/\(key)") }
    }

    // MARK: Deliveries

    /// Returns the rollout with the flag's deliveries: the deliveries of the rules and of the winners of concluded
    /// experiments and, as the last one, the variation for everybody else.
    ///
    /// - Parameter experiments: the experiments of the flag.
    /// - Returns: `nil` if there are no deliveries, or if an uploaded datafile has them.
    func rollout(_ experiments: [ExperimentDefinition]) -> JSONValue? {
        let deliveries: [JSONValue]
        switch content {
        case .datafile: return nil
        case .experiment:
            guard let experiment = experiments.first, let winner = experiment.winner else { return nil }
            var delivery = json(Delivery(variation: winner.key, traffic: 100), id: ruleID(key), key: nil)
            GivenAudience.write(experiment.audience, of: experiment.id, to: &delivery, replacing: experiment.source)
            deliveries = [.object(delivery)]
        case .rules(let content): deliveries = self.deliveries(of: content, experiments)
        }
        return ["id": .string(rolloutID), "experiments": .array(deliveries)]
    }

    private func deliveries(of content: Rules, _ experiments: [ExperimentDefinition]) -> [JSONValue] {
        let winners = Dictionary(
            experiments.compactMap { experiment in experiment.winner.map { (experiment.key, $0.key) } },
            uniquingKeysWith: { $1 })
        var deliveries: [JSONValue] = []
        for rule in content.rules {
            let winner = winners[rule.key].map { Delivery(variation: $0, traffic: 100) }
            guard let delivery = rule.delivery ?? winner else { continue }
            // The concluded experiment still has the key of the rule, so the delivery of its winner needs another.
            let key = winner == nil ? rule.key.string : nil
            var json = json(delivery, id: ruleID(rule.key), key: key)
            if rule.audience != nil { json["audienceIds"] = [.string(audienceID(rule.key))] }
            json["audienceConditions"] = json["audienceIds"]
            deliveries.append(.object(json))
        }
        // The Agent recognizes the last rule by this prefix.
        let last = Delivery(variation: content.otherwise, traffic: 100)
        deliveries.append(.object(json(last, id: "default-\(rolloutID)", key: nil)))
        return deliveries
    }

    /// Returns a delivery in the format of a datafile, with an audience of everybody.
    ///
    /// - Parameter key: `nil` to use the id as key, too.
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

    /// Sets in a variation of the datafile whether it is enabled, and the value of the flag's variable.
    ///
    /// - Parameter key: the key of the variation.
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

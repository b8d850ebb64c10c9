public import Bucketing
import JSON

extension FlagDefinition {
    /// Creates or updates the flag in a datafile.
    ///
    /// In the model of the SDKs a flag's experiments come before its deliveries. So an experiment that follows
    /// deliveries gets their audiences excluded from its own, see ``AudienceExclusion``.
    ///
    /// - Parameter datafile: the compiled datafile before the edit.
    /// - Returns: whether the flag is new.
    /// - Throws: 409 if the flag comes from a datafile or an experiment and the definition has more than it allows, an
    ///   experiment has the key of a new flag, or an experiment is archived and the definition does not restore it; 422 with every wrong member.
    public func apply(to editor: inout DatafileEditor, _ datafile: Datafile?) throws(CoreError) -> Bool {
        guard var flag = editor.element(of: .flags, "key", key) else {
            try checkNoExperiment(in: editor)
            try define(FlagState(key: key, type: try requiredType()), &editor, datafile)
            return true
        }
        let wasOff = flag.off != nil
        Self.turnOn(&flag, in: &editor)
        editor.set(flag, in: .flags, by: "key")
        if let state = FlagState(flag) {
            if let type, type != state.type {
                throw CoreError(
                    .conflict, "`type` must stay \(state.type.rawValue), because apps rely on it; got \(type.rawValue)",
                    at: ["type"])
            }
            var former = state
            former.isEnabled = !wasOff
            try define(former, &editor, datafile)
        } else {
            try annotate(flag, isEnabled: isEnabled ?? !wasOff, &editor)
        }
        return false
    }

    /// A key has one owner: an experiment of the key would be something else in results, exposures and the API.
    private func checkNoExperiment(in editor: DatafileEditor) throws(CoreError) {
        guard let experiment = editor.experiment(key: Identifier(key)) else { return }
        let owner = experiment[Annotations.member]?.object?["flag"]?.string
        // It was a rule of a flag of this key, which has been deleted since.
        if owner == key { return }
        let place = owner.map { "a rule of the flag '\($0)'" } ?? "an experiment"
        throw CoreError(
            .conflict, "a flag must have a key that no experiment has; \(place) has '\(key)': choose another key",
            at: [])
    }

    private func requiredType() throws(CoreError) -> Variable.Kind {
        guard let type else { throw CoreError(.unprocessable, "a new flag must have a `type`", at: ["type"]) }
        return type
    }

    /// Changes the annotations of a flag that comes from a datafile or serves an experiment.
    private func annotate(_ flag: JSONObject, isEnabled: Bool, _ editor: inout DatafileEditor) throws(CoreError) {
        var flag = flag
        var annotations = flag[Annotations.member]?.object ?? JSONObject()
        var defined = [
            ("type", type != nil), ("variations", variations != nil), ("rules", rules != nil),
            ("otherwise", otherwise != nil),
        ]
        let place: String
        if FlagAnnotations(annotations).servesExperiment {
            defined.append(("enabled", self.isEnabled != nil))
            place = "with PUT /v1/experiments/\(key), because the flag serves that experiment"
        } else {
            place = "with PUT /v1/datafile, because the flag comes from a datafile"
        }
        if let member = defined.first(where: \.1)?.0 {
            throw CoreError(
                .conflict, "`\(member)` must be changed \(place); for another flag choose another key", at: [member])
        }
        if let description { annotations["description"] = description.isEmpty ? nil : .string(description) }
        if let tags { annotations["tags"] = .array(tags.map { .string($0) }) }
        flag[Annotations.member] = annotations.isEmpty ? nil : .object(annotations)
        if !isEnabled { try Self.turnOff(&flag, in: &editor) }
        editor.set(flag, in: .flags, by: "key")
    }

    // MARK: The definition

    private func define(_ former: FlagState, _ editor: inout DatafileEditor, _ datafile: Datafile?) throws(CoreError) {
        let state = try merged(into: former, editor, datafile)
        var flag = editor.element(of: .flags, "key", key) ?? JSONObject()
        flag["id"] = flag["id"] ?? .string(DerivedID.of("flag/\(key)"))
        flag["key"] = .string(key)
        flag["rolloutId"] = .string(state.rolloutID)
        let formerIDs = flag["experimentIds"]?.array ?? []
        let ids = try defineExperiments(of: state, &editor, datafile)
        flag["experimentIds"] = .array(ids)
        flag["variables"] = [state.type.variable(id: state.variableID, defaultText: state.defaultText)]
        var annotations = state.annotations
        annotations["version"] = flag[Annotations.member]?.object?["version"]
        flag[Annotations.member] = .object(annotations)
        for id in formerIDs where !ids.contains(id) { try Self.archive(id, in: &editor) }
        Self.defineRollout(of: state, replacing: former, &editor)
        if !state.isEnabled { try Self.turnOff(&flag, in: &editor) }
        editor.set(flag, in: .flags, by: "key")
    }

    /// - Returns: the ids of the experiments, in the order of the rules.
    private func defineExperiments(
        of state: FlagState, _ editor: inout DatafileEditor, _ datafile: Datafile?
    ) throws(CoreError) -> [JSONValue] {
        var ids: [JSONValue] = []
        var excluded: [JSONValue] = []
        for (index, rule) in state.rules.enumerated() {
            guard rule.delivery == nil else {
                if let audience = rule.datafileAudience { excluded.append(AudienceExclusion.outside(audience)) }
                continue
            }
            if case .experiment(let given)? = rules?[index].choice {
                var definition = ExperimentDefinition(key: rule.key)
                definition.take(given, of: state, datafile)
                definition.audience = Self.conjunction((rule.datafileAudience.map { [$0] } ?? []) + excluded) ?? .null
                do throws(CoreError) {
                    try definition.applyWithoutFlag(to: &editor, datafile)
                } catch {
                    var error = error
                    let place = JSONPointer().appending("rules").appending(index).appending("experiment")
                    error.pointer = place.appending(error.pointer ?? [])
                    throw error
                }
            }
            state.giveValues(toExperiment: Identifier(rule.key), in: &editor)
            if let id = editor.experiment(key: Identifier(rule.key))?["id"] { ids.append(id) }
        }
        return ids
    }

    private static func conjunction(_ conditions: [JSONValue]) -> JSONValue? {
        conditions.count > 1 ? .array(["and"] + conditions) : conditions.first
    }

    private static func archive(_ id: JSONValue, in editor: inout DatafileEditor) throws(CoreError) {
        guard let key = editor.experiments.last(where: { $0["id"] == id })?["key"]?.string else { return }
        try ExperimentDefinition.archive(Identifier(key), in: &editor)
    }

    /// Writes the deliveries and, as the last delivery, the variation for everybody else.
    private static func defineRollout(
        of state: FlagState, replacing former: FlagState, _ editor: inout DatafileEditor
    ) {
        for rule in former.rules where rule.delivery != nil {
            editor.remove(from: .typedAudiences, "id", "holdfast\(former.ruleID(rule.key))")
        }
        var rules: [JSONValue] = []
        for rule in state.rules {
            guard let delivery = rule.delivery else { continue }
            let id = state.ruleID(rule.key)
            if let audience = rule.datafileAudience {
                let audienceID = JSONValue.string("holdfast\(id)")
                editor.setTypedAudience(
                    ["id": audienceID, "name": .string("of \(rule.key)"), "conditions": audience])
            }
            rules.append(
                Self.delivery(
                    of: delivery.variation, id: id, key: rule.key, traffic: delivery.traffic,
                    hasAudience: rule.audience != nil, state))
        }
        // The Agent knows the last rule by this prefix.
        let last = "default-\(state.rolloutID)"
        rules.append(Self.delivery(of: state.otherwise, id: last, key: last, traffic: 100, hasAudience: false, state))
        var rollout = JSONObject()
        rollout["id"] = .string(state.rolloutID)
        rollout["experiments"] = .array(rules)
        editor.set(rollout, in: .rollouts, by: "id")
    }

    private static func delivery(
        of variationKey: String, id: String, key: String, traffic: Double, hasAudience: Bool, _ state: FlagState
    ) -> JSONValue {
        let variationID = DerivedID.of("\(id)/\(variationKey)")
        var variation = JSONObject()
        variation["id"] = .string(variationID)
        variation["key"] = .string(variationKey)
        let weights = TrafficAllocation.weights(of: [Identifier(variationID)], ratio: [1], traffic: traffic)
        let audienceIDs: JSONValue = hasAudience ? [.string("holdfast\(id)")] : []
        return [
            "id": .string(id), "key": .string(key), "layerId": .string(state.rolloutID), "status": "Running",
            "audienceIds": audienceIDs, "audienceConditions": audienceIDs, "forcedVariations": [:],
            "variations": [.object(state.withValue(variation))],
            "trafficAllocation": TrafficAllocation(weights: weights).json,
        ]
    }

    // MARK: On and off

    /// Turns a flag off for everybody: its experiments pause, and it loses its deliveries, so that each SDK gives the
    /// default values. The annotations keep what it had.
    ///
    /// - Throws: 409 if another flag has one of the experiments.
    private static func turnOff(_ flag: inout JSONObject, in editor: inout DatafileEditor) throws(CoreError) {
        let key = flag["key"]
        var running: [JSONValue] = []
        for id in flag["experimentIds"]?.array ?? [] {
            let other = editor.elements(of: .flags).first {
                $0["key"] != key && $0["experimentIds"]?.array?.contains(id) ?? false
            }
            guard var experiment = editor.experiments.last(where: { $0["id"] == id }),
                experiment["status"] == "Running"
            else { continue }
            if let other {
                throw CoreError(
                    .conflict,
                    "the flag cannot be turned off alone: the flag '\(other["key"]?.string ?? "")' has the experiment "
                        + "'\(experiment["key"]?.string ?? "")', too", at: ["enabled"])
            }
            running.append(id)
            experiment["status"] = "Paused"
            editor.setExperiment(experiment)
        }
        var annotations = flag[Annotations.member]?.object ?? JSONObject()
        annotations["off"] = ["rolloutId": flag["rolloutId"] ?? "", "running": .array(running)]
        // Last, so that a change that makes no difference leaves the same text.
        let version = annotations["version"]
        annotations["version"] = nil
        annotations["version"] = version
        flag[Annotations.member] = .object(annotations)
        flag["rolloutId"] = ""
    }

    /// Undoes ``turnOff(_:in:)``, if the flag is off.
    private static func turnOn(_ flag: inout JSONObject, in editor: inout DatafileEditor) {
        guard let off = flag.off else { return }
        flag["rolloutId"] = off["rolloutId"] ?? ""
        for id in off["running"]?.array ?? [] {
            guard var experiment = editor.experiments.last(where: { $0["id"] == id }),
                experiment["status"] == "Paused"
            else { continue }
            experiment["status"] = "Running"
            editor.setExperiment(experiment)
        }
        var annotations = flag[Annotations.member]?.object ?? JSONObject()
        annotations["off"] = nil
        flag[Annotations.member] = annotations.isEmpty ? nil : .object(annotations)
    }

    // MARK: Removing

    /// Removes a flag with its deliveries, and archives its experiments.
    ///
    /// - Throws: 404 if there is no such flag, 409 if it serves an experiment.
    public static func remove(_ key: String, from editor: inout DatafileEditor) throws(CoreError) {
        guard var flag = editor.element(of: .flags, "key", key) else {
            throw CoreError(.notFound, "no flag has the key '\(key)'")
        }
        guard !FlagAnnotations(flag[Annotations.member]?.object).servesExperiment else {
            throw CoreError(
                .conflict, "the flag serves the experiment '\(key)'; archive that with DELETE /v1/experiments/\(key)")
        }
        turnOn(&flag, in: &editor)
        editor.remove(from: .flags, "key", key)
        ServedExperiments.release(Identifier(key), in: &editor)
        let others = editor.elements(of: .flags)
        for id in flag["experimentIds"]?.array ?? []
        where !others.contains(where: { $0["experimentIds"]?.array?.contains(id) ?? false }) {
            try archive(id, in: &editor)
        }
        let rolloutID = flag["rolloutId"]?.string ?? ""
        if !others.contains(where: { $0["rolloutId"] == .string(rolloutID) }) {
            editor.remove(from: .rollouts, "id", rolloutID)
        }
        guard let state = FlagState(flag) else { return }
        for rule in state.rules where rule.delivery != nil {
            editor.remove(from: .typedAudiences, "id", "holdfast\(state.ruleID(rule.key))")
        }
    }
}

extension JSONObject {
    /// What a flag that is not enabled had.
    fileprivate var off: JSONObject? { self[Annotations.member]?.object?["off"]?.object }
}

extension ExperimentDefinition {
    /// Takes the members that a rule sets. A new experiment has all variations of the flag, unless weights are given.
    fileprivate mutating func take(
        _ given: FlagDefinition.RuleExperiment, of state: FlagState, _ datafile: Datafile?
    ) {
        id = given.id
        traffic = given.traffic
        status = given.status
        enrollment = given.enrollment
        group = given.group
        if let weights = given.weights {
            variations = weights.map { VariationDefinition(key: $0.key, id: nil, weight: $0.weight) }
        } else if datafile?.experiment(key: Identifier(key)) == nil {
            variations = state.variations.map { VariationDefinition(key: $0.key, id: nil, weight: nil) }
        }
    }
}

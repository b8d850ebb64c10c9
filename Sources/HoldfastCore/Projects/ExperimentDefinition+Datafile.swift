public import Bucketing
public import JSON
import Storage

extension ExperimentDefinition {
    /// Creates or updates the experiment in a datafile. Absent members keep their values, ids never change, and as few
    /// bucket values as possible move to another variation.
    ///
    /// - Parameter datafile: the compiled datafile before the edit.
    /// - Returns: whether the experiment is new.
    /// - Throws: 422 if a new experiment has no variations, or two variations have the same id; 409 if the key belongs
    ///   to a delivery rule or a flag, the id belongs to another experiment, an id would change, the experiment is
    ///   archived and the definition has no status, or a flag defines what would change; 422 if the experiments of its
    ///   group would have more than 100% of the traffic.
    @discardableResult
    public func apply(to editor: inout DatafileEditor, _ datafile: Datafile?) throws(CoreError) -> Bool {
        let flag = try flagOfRule(in: editor)
        let isNew = datafile?.experiment(key: Identifier(key)) == nil
        if isNew { try checkNoFlag(in: editor) }
        try applyWithoutFlag(to: &editor, datafile)
        if let flag {
            flag.giveValues(toExperiment: Identifier(key), in: &editor)
        } else {
            ServedExperiments.mark(Identifier(key), isNew: isNew, in: &editor)
        }
        return isNew
    }

    /// A new experiment is served as a flag of its key, so no other flag may have the key.
    private func checkNoFlag(in editor: DatafileEditor) throws(CoreError) {
        guard editor.element(of: .flags, "key", key) != nil else { return }
        throw CoreError(
            .conflict,
            "an experiment must have a key that no flag has; the flag '\(key)' has it: choose another key, or make the "
                + "experiment a rule of the flag with PUT /v1/flags/\(key)", at: [])
    }

    /// Creates or updates the experiment as ``apply(to:_:)`` does, whatever flag it belongs to.
    func applyWithoutFlag(to editor: inout DatafileEditor, _ datafile: Datafile?) throws(CoreError) {
        let former = datafile?.experiment(key: Identifier(key))
        var experiment = editor.experiment(key: Identifier(key)) ?? JSONObject()
        guard former == nil || !experiment.isEmpty else {
            throw CoreError(.conflict, "'\(key)' is a delivery rule of a flag; change it in the datafile")
        }
        guard former?.status != ExperimentStatus.archived.rawValue || status != nil else {
            throw CoreError(
                .conflict, "the experiment '\(key)' is archived; set `status` to restore it",
                at: ["status"])
        }
        guard former != nil || variations != nil else {
            throw CoreError(.unprocessable, "a new experiment must have `variations`", at: ["variations"])
        }
        let id = try Self.id(former?.id, given: self.id, at: ["id"]) ?? Self.freshID()
        if let owner = datafile?.experiment(id: Identifier(id)), owner.key != Identifier(key) {
            throw CoreError(.conflict, "`id` must be free; the experiment '\(owner.key)' has '\(id)'", at: ["id"])
        }
        experiment["id"] = .string(id)
        experiment["key"] = .string(key)
        experiment["layerId"] = experiment["layerId"] ?? .string(id)
        experiment["status"] = status?.json ?? experiment["status"] ?? "Running"
        experiment["forcedVariations"] = experiment["forcedVariations"] ?? [:]
        experiment["audienceIds"] = experiment["audienceIds"] ?? []
        if let variations { try apply(variations, to: &experiment, experimentID: id) }
        let target = try groupAfterwards(in: editor)
        allocate(in: &experiment, former, isGrouped: target.hasName)
        apply(audience, id: "holdfast\(id)", to: &experiment, &editor)
        editor.setExperiment(experiment)
        try moveExperiment(to: target, in: &editor)
    }

    /// Returns the former id, or else the given one; `nil` if there is neither.
    ///
    /// - Throws: 409 if they differ.
    private static func id(
        _ former: Identifier?, given: String?, at place: JSONPointer
    ) throws(CoreError) -> String? {
        guard let former else { return given }
        if let given, Identifier(given) != former {
            throw CoreError(
                .conflict, "`id` must stay '\(former)', because assignments refer to it; got '\(given)'", at: place)
        }
        return former.string
    }

    // MARK: Variations

    /// The member of a datafile that keeps the ids of removed variations. A variation that is added again gets its
    /// former id.
    private static let retiredVariations = "retiredVariations"

    private func apply(
        _ variations: [VariationDefinition], to experiment: inout JSONObject, experimentID: String
    ) throws(CoreError) {
        let known = (experiment["variations"]?.array ?? []).compactMap(\.object)
        let retired = (experiment[Self.retiredVariations]?.array ?? []).compactMap(\.object)
        var list: [JSONObject] = []
        var ids: Set<Identifier> = []
        for (index, variation) in variations.enumerated() {
            let place = JSONPointer().appending("variations").appending(index).appending("id")
            func isOfKey(_ object: JSONObject) -> Bool { object["key"] == .string(variation.key) }
            var object = known.last(where: isOfKey) ?? retired.last(where: isOfKey) ?? JSONObject()
            let former = object["id"]?.string.map { Identifier($0) }
            // Unambiguous, because an experiment's id has no slash.
            let id =
                try Self.id(former, given: variation.id, at: place) ?? DerivedID.of("\(experimentID)/\(variation.key)")
            guard ids.insert(Identifier(id)).inserted else {
                throw CoreError(.unprocessable, "the ids of variations must differ; got '\(id)' twice", at: place)
            }
            object["id"] = .string(id)
            object["key"] = .string(variation.key)
            object["weight"] = variation.weight.map { .number($0) }
            list.append(object)
        }
        experiment["variations"] = .array(list.map { .object($0) })
        let leftOut = (retired + known).filter { object in
            !list.contains { $0["key"] == object["key"] }
                && object["id"]?.string.map { !ids.contains(Identifier($0)) } ?? false
        }
        let entries = leftOut.map { object -> JSONValue in ["id": object["id"] ?? .null, "key": object["key"] ?? .null]
        }
        experiment[Self.retiredVariations] = entries.isEmpty ? nil : .array(entries)
    }

    /// Returns the keys of the variations that an experiment of a datafile had, by id.
    static func retiredVariations(of experiment: JSONObject) -> [Identifier: Identifier] {
        var keys: [Identifier: Identifier] = [:]
        for variation in experiment[retiredVariations]?.array ?? [] {
            guard let id = variation.object?["id"]?.string, let key = variation.object?["key"]?.string else { continue }
            keys[Identifier(id)] = Identifier(key)
        }
        return keys
    }

    /// Returns a random id. It must not be the id of a deleted experiment, whose stored assignments would apply again.
    private static func freshID() -> String {
        String(UInt64.random(in: 1_000_000_000_000_000..<1_000_000_000_000_000_000))
    }

    // MARK: Traffic

    /// While enrollment is closed, the allocation in the datafile is empty, so that no SDK enrolls anybody, and the
    /// annotations keep what it will be again.
    private func allocate(in experiment: inout JSONObject, _ former: Experiment?, isGrouped: Bool) {
        let total = traffic ?? former?.traffic ?? 100
        // A group gives an experiment its part of the users, which the experiment's own allocation only splits.
        let ownTraffic = isGrouped ? 100 : total
        var allocation = former?.plannedAllocation ?? TrafficAllocation(ranges: [])
        if former == nil || variations != nil || former?.ownTraffic != ownTraffic {
            allocation = allocation.reallocated(to: weights(of: experiment, former, traffic: ownTraffic))
            if variations == nil, let former { Self.keep(former.relativeWeights, in: &experiment) }
        }
        let isClosed = enrollment.map { $0 == .closed } ?? former?.annotations.isClosed ?? false
        experiment["trafficAllocation"] = isClosed ? [] : allocation.json
        var annotations = experiment[Annotations.member]?.object ?? JSONObject()
        annotations["enrollment"] = isClosed ? .string(Enrollment.closed.rawValue) : nil
        annotations["trafficAllocation"] = isClosed ? allocation.json : nil
        annotations["traffic"] = isGrouped ? .shortest(total) : nil
        experiment[Annotations.member] = annotations.isEmpty ? nil : .object(annotations)
    }

    /// Writes the weights into the variations. The shares of little traffic, rounded to hundredths, would lose them.
    private static func keep(_ weights: [Identifier: Double], in experiment: inout JSONObject) {
        let variations = (experiment["variations"]?.array ?? []).map { value -> JSONValue in
            guard var variation = value.object, let id = variation["id"]?.string else { return value }
            variation["weight"] = weights[Identifier(id)].map { .shortest($0) } ?? 0
            return .object(variation)
        }
        experiment["variations"] = .array(variations)
    }

    private func weights(
        of experiment: JSONObject, _ former: Experiment?, traffic: Double
    ) -> [TrafficAllocation.Weight] {
        let objects = (experiment["variations"]?.array ?? []).compactMap(\.object)
        let ids = objects.compactMap { $0["id"]?.string.map { Identifier($0) } }
        let ratio: [Double]
        if let variations {
            ratio = variations.map { $0.weight ?? 1 }
        } else {
            let weights = former?.relativeWeights ?? [:]
            ratio = ids.map { weights[$0] ?? 0 }
        }
        return TrafficAllocation.weights(of: ids, ratio: ratio, traffic: traffic)
    }

    // MARK: Audience

    private func apply(
        _ audience: JSONValue?, id: String, to experiment: inout JSONObject, _ editor: inout DatafileEditor
    ) {
        guard let audience else { return }
        var annotations = experiment[Annotations.member]?.object ?? JSONObject()
        let conditions = ConditionDialect.datafileForm(of: audience)
        annotations["audience"] = conditions == audience ? nil : audience
        experiment[Annotations.member] = annotations.isEmpty ? nil : .object(annotations)
        if audience.isNull {
            experiment["audienceConditions"] = nil
            experiment["audienceIds"] = []
            editor.remove(from: .typedAudiences, "id", id)
        } else {
            experiment["audienceConditions"] = [.string(id)]
            experiment["audienceIds"] = [.string(id)]
            editor.setTypedAudience(["id": .string(id), "name": .string("of \(key)"), "conditions": conditions])
        }
    }
}

/// Ids that depend only on the names of what they identify, so that what is removed and added again is the same.
enum DerivedID {
    static func of(_ name: String) -> String {
        let hash = Array(name.utf8).withUnsafeBytes { bytes in
            UInt64(MurmurHash3.hash(bytes, seed: 1)) << 32 | UInt64(MurmurHash3.hash(bytes, seed: 2))
        }
        return String(hash)
    }
}

extension Project {
    /// Returns the keys of the variations that an experiment had, by id.
    public func retiredVariations(of experiment: Experiment) -> [Identifier: Identifier] {
        DatafileEditor(datafile).experiment(key: experiment.key).map(ExperimentDefinition.retiredVariations) ?? [:]
    }
}

extension Experiment {
    /// The response of `GET /v1/experiments/{key}`.
    ///
    /// - Parameter datafile: the one that has the experiment.
    public func description(in datafile: Datafile, sdkKey: String) -> JSONValue {
        let shares = shares
        let weights = relativeWeights
        // In a group, the shares divide the experiment's part of the users.
        let part = annotations.traffic.map { $0 / 100 } ?? 1
        let variations = variations.map { variation -> JSONValue in
            [
                "id": .string(variation.id.string), "key": .string(variation.key.string),
                "weight": .shortest(weights[variation.id] ?? 0),
                "share": .shortest(Double(shares[variation.id] ?? 0) / 100 * part),
            ]
        }
        return [
            "id": .string(id.string), "key": .string(key.string), "status": .string(ExperimentStatus.name(of: status)),
            "variations": .array(variations), "traffic": .shortest(traffic), "enrollment": .string(enrollment.rawValue),
            "group": groupName.map { .string($0) } ?? .null, "audience": audience(in: datafile),
            "audience_conditions": audienceConditions, "traffic_allocation": trafficAllocation.json,
            "sdk_key": .string(sdkKey), "revision": .string(datafile.revision),
        ]
    }

    /// The audience as it was given: of a flag's rule, without the audiences of earlier deliveries that the datafile
    /// excludes.
    private func audience(in datafile: Datafile) -> JSONValue {
        if let flag = annotations.flagKey.flatMap({ datafile.flag(key: $0) }),
            let annotations = flag.annotations.object,
            let state = FlagState(annotations: annotations, key: flag.key.string),
            let rule = state.rules.first(where: { Identifier($0.key) == key })
        {
            return rule.audience ?? .null
        }
        let conditions = datafile.audience(of: self)
        // An upload may have changed the conditions since.
        let isGiven = annotations.audience.map { ConditionDialect.datafileForm(of: $0) == conditions } ?? false
        return isGiven ? annotations.audience ?? conditions : conditions
    }

    /// The percentage of users who are enrolled, 0 to 100; while enrollment is closed, who will be when it is open.
    var traffic: Double { annotations.traffic ?? ownTraffic }

    /// The percentage of the experiment's own bucket values that have a variation.
    var ownTraffic: Double {
        Double(variations.reduce(0) { [shares] in $0 + (shares[$1.id] ?? 0) }) / 100
    }

    var enrollment: ExperimentDefinition.Enrollment { annotations.isClosed ? .closed : .open }

    /// The name of the group of mutually exclusive experiments; the id of a group that a datafile brought.
    var groupName: String? { exclusionGroup.map { $0.name ?? $0.id.string } }

    /// The relative weights of the variations: the weights that were given, if the allocation agrees with them;
    /// otherwise each variation's share of users, in hundredths of a percent.
    ///
    /// Shares that differ by one hundredth at most are equal parts, rounded. Their weights are equal, too: what the
    /// rounding of little traffic took from a variation must not stay lost when the traffic is raised.
    var relativeWeights: [Identifier: Double] {
        let ids = variations.map(\.id)
        let given = variations.compactMap(\.weight)
        let total = ownTraffic
        if given.count == ids.count, given.contains(where: { $0 > 0 }), given.allSatisfy({ $0 >= 0 && $0.isFinite }) {
            let expected = TrafficAllocation.weights(of: ids, ratio: given, traffic: total)
            if expected.allSatisfy({ shares[$0.entityID] ?? 0 == $0.weight }) {
                return Dictionary(zip(ids, given), uniquingKeysWith: { first, _ in first })
            }
        }
        let parts = ids.map { shares[$0] ?? 0 }
        let difference = (parts.max() ?? 0) - (parts.min() ?? 0)
        // Without traffic there are no shares to derive weights from, so all variations get the same.
        if total == 0 || difference <= 1 {
            return Dictionary(ids.map { ($0, 1) }, uniquingKeysWith: { first, _ in first })
        }
        return shares.mapValues { Double($0) }
    }
}

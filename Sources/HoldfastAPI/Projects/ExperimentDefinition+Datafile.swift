import Bucketing
import HTTPServer

extension ExperimentDefinition {
    /// Makes or changes the experiment in a datafile. What is not said stays as it is; ids, once given, stay too; and
    /// of the traffic as little as possible changes hands.
    ///
    /// - Parameter datafile: the one that is edited.
    /// - Throws: 400 when a new experiment has no variations, or two of one id; 409 when the key belongs to a delivery
    ///   rule, or an id to another experiment, or when it is not the one that was given before.
    func apply(to editor: inout DatafileEditor, _ datafile: Datafile?) throws(Problem) {
        let former = datafile?.experiment(key: Identifier(key))
        var experiment = editor.experiment(key: Identifier(key)) ?? JSONObject()
        guard former == nil || !experiment.isEmpty else {
            throw Problem(.conflict, "'\(key)' is a delivery rule of a flag, which is changed with its datafile")
        }
        guard former != nil || variations != nil else {
            throw Problem(.badRequest, "a new experiment needs variations", at: ["variations"])
        }
        let id = try Self.id(former?.id, given: self.id, at: ["id"])
        if let owner = datafile?.experiment(id: Identifier(id)), owner.key != Identifier(key) {
            throw Problem(.conflict, "the experiment '\(owner.key)' has this id", at: ["id"])
        }
        experiment["id"] = .string(id)
        experiment["key"] = .string(key)
        experiment["layerId"] = experiment["layerId"] ?? .string(id)
        experiment["status"] = .string(status ?? former?.status ?? "Running")
        experiment["forcedVariations"] = experiment["forcedVariations"] ?? [:]
        experiment["audienceIds"] = experiment["audienceIds"] ?? []
        if let variations { try apply(variations, to: &experiment, former) }
        apply(audience, id: "holdfast\(id)", to: &experiment, &editor)
        editor.setExperiment(experiment)
    }

    /// The id that was given before, or now, or a fresh one.
    private static func id(
        _ former: Identifier?, given: String?, at place: JSONPointer
    ) throws(Problem) -> String {
        guard let former else { return given ?? freshID() }
        if let given, Identifier(given) != former {
            throw Problem(.conflict, "the id is '\(former)', and stays: assignments name it", at: place)
        }
        return former.string
    }

    private func apply(
        _ variations: [VariationDefinition], to experiment: inout JSONObject, _ former: Experiment?
    ) throws(Problem) {
        let known = experiment["variations"]?.array ?? []
        var weights: [TrafficAllocation.Weight] = []
        var list: [JSONValue] = []
        for (index, variation) in variations.enumerated() {
            let place = JSONPointer().appending("variations").appending(index).appending("id")
            var object = known.last { $0.object?["key"] == .string(variation.key) }?.object ?? JSONObject()
            let id = try Self.id(object["id"]?.string.map { Identifier($0) }, given: variation.id, at: place)
            guard !weights.contains(where: { $0.entityID == Identifier(id) }) else {
                throw Problem(.badRequest, "another variation has this id", at: place)
            }
            object["id"] = .string(id)
            object["key"] = .string(variation.key)
            list.append(.object(object))
            weights.append(.init(entityID: Identifier(id), weight: variation.weight ?? 0))
        }
        if variations.allSatisfy({ $0.weight == nil }) {
            weights = TrafficAllocation.equalWeights(of: weights.map(\.entityID))
        }
        experiment["variations"] = .array(list)
        let allocation = former?.trafficAllocation.reallocated(to: weights) ?? TrafficAllocation(weights: weights)
        experiment["trafficAllocation"] = allocation.json
    }

    private func apply(
        _ audience: JSONValue?, id: String, to experiment: inout JSONObject, _ editor: inout DatafileEditor
    ) {
        guard let audience else { return }
        if audience.isNull {
            experiment["audienceConditions"] = nil
            experiment["audienceIds"] = []
            editor.removeTypedAudience(id: id)
        } else {
            experiment["audienceConditions"] = [.string(id)]
            experiment["audienceIds"] = [.string(id)]
            editor.setTypedAudience(["id": .string(id), "name": .string("of \(key)"), "conditions": audience])
        }
    }

    /// An id that no other experiment or variation has or ever had, whose assignments would come alive again.
    private static func freshID() -> String {
        String(UInt64.random(in: 1_000_000_000_000_000..<1_000_000_000_000_000_000))
    }
}

extension Experiment {
    /// As `GET /v1/experiments/{key}` answers it.
    func description(sdkKey: String, revision: String) -> JSONValue {
        let weights = weights
        let variations = variations.map { variation -> JSONValue in
            [
                "id": .string(variation.id.string), "key": .string(variation.key.string),
                "weight": .integer(Int64(weights[variation.id] ?? 0)),
            ]
        }
        return [
            "id": .string(id.string), "key": .string(key.string), "status": .string(status),
            "variations": .array(variations), "audience_conditions": audienceConditions,
            "traffic_allocation": trafficAllocation.json, "sdk_key": .string(sdkKey), "revision": .string(revision),
        ]
    }
}

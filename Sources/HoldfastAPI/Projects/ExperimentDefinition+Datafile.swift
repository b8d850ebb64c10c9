import Bucketing
import HTTPServer

extension ExperimentDefinition {
    /// Makes or changes the experiment in a datafile. What is not said stays as it is; ids, once given, stay too; and
    /// of the traffic as little as possible changes hands.
    ///
    /// - Throws: 400 when a new experiment has no variations, 409 when the key belongs to a delivery rule.
    func apply(to editor: inout DatafileEditor, former: Experiment?) throws(Problem) {
        var experiment = editor.experiment(key: Identifier(key)) ?? JSONObject()
        guard former == nil || !experiment.isEmpty else {
            throw Problem(.conflict, "'\(key)' is a delivery rule of a flag, which is changed with its datafile")
        }
        guard former != nil || variations != nil else {
            throw Problem(.badRequest, "a new experiment needs variations", at: ["variations"])
        }
        let id = former?.id.string ?? id ?? Self.freshID()
        experiment["id"] = .string(id)
        experiment["key"] = .string(key)
        experiment["layerId"] = experiment["layerId"] ?? .string(id)
        experiment["status"] = .string(status ?? former?.status ?? "Running")
        experiment["forcedVariations"] = experiment["forcedVariations"] ?? [:]
        experiment["audienceIds"] = experiment["audienceIds"] ?? []
        if let variations { apply(variations, to: &experiment, former) }
        apply(audience, id: "holdfast\(id)", to: &experiment, &editor)
        editor.setExperiment(experiment)
    }

    private func apply(_ variations: [VariationDefinition], to experiment: inout JSONObject, _ former: Experiment?) {
        let known = experiment["variations"]?.array ?? []
        var weights: [TrafficAllocation.Weight] = []
        var list: [JSONValue] = []
        for variation in variations {
            var object = known.last { $0.object?["key"] == .string(variation.key) }?.object ?? JSONObject()
            let id = object["id"]?.string ?? variation.id ?? Self.freshID()
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
        var share: [Identifier: Int] = [:]
        var start = 0
        for range in trafficAllocation.ranges {
            share[range.entityID, default: 0] += max(0, range.end - start)
            start = max(start, range.end)
        }
        let variations = variations.map { variation -> JSONValue in
            [
                "id": .string(variation.id.string), "key": .string(variation.key.string),
                "weight": .integer(Int64(share[variation.id] ?? 0)),
            ]
        }
        return [
            "id": .string(id.string), "key": .string(key.string), "status": .string(status),
            "variations": .array(variations), "audience_conditions": audienceConditions,
            "traffic_allocation": trafficAllocation.json, "sdk_key": .string(sdkKey), "revision": .string(revision),
        ]
    }
}

import Bucketing
import JSON
import Testing

/// Makes small datafiles.
enum Fixture {
    /// Makes one flag with one experiment that buckets everyone in its audience into `on`.
    static func service(
        audiences: [(id: String, conditions: String)], audienceConditions: String, audienceIDs: [String] = []
    ) throws -> DecisionService {
        var experiment = try object(experiment("experiment", id: "10"))
        experiment["audienceConditions"] = try JSONParser().parse(audienceConditions)
        experiment["audienceIds"] = .array(audienceIDs.map { .string($0) })
        var root = try #require(Datafile.empty(projectID: "1").object)
        root["experiments"] = [.object(experiment)]
        root["typedAudiences"] = .array(
            try audiences.map { audience in
                ["id": .string(audience.id), "name": "n", "conditions": try JSONParser().parse(audience.conditions)]
            })
        root["featureFlags"] = [flag("flag", experiments: ["10"])]
        return DecisionService(datafile: try Datafile(.object(root)))
    }

    /// Makes an empty datafile with some members replaced.
    static func service(_ members: KeyValuePairs<String, JSONValue>) throws -> DecisionService {
        var root = try #require(Datafile.empty(projectID: "1").object)
        for (key, value) in members {
            root[key] = value
        }
        return DecisionService(datafile: try Datafile(.object(root)))
    }

    /// Makes an experiment whose traffic goes to the variation `on`. It also has the variation `off`.
    static func experiment(_ key: String, id: String, _ members: KeyValuePairs<String, JSONValue> = [:]) -> JSONValue {
        var object = JSONObject()
        object["id"] = .string(id)
        object["key"] = .string(key)
        object["layerId"] = .string("layer-\(id)")
        object["status"] = "Running"
        object["variations"] = [
            ["id": .string("\(id)1"), "key": "on", "featureEnabled": true],
            ["id": .string("\(id)2"), "key": "off", "featureEnabled": false],
        ]
        object["trafficAllocation"] = [["entityId": .string("\(id)1"), "endOfRange": 10_000]]
        object["audienceIds"] = []
        object["forcedVariations"] = [:]
        for (key, value) in members {
            object[key] = value
        }
        return .object(object)
    }

    static func flag(_ key: String, experiments: [String], rollout: String = "") -> JSONValue {
        [
            "id": .string("id-\(key)"), "key": .string(key), "rolloutId": .string(rollout), "variables": [],
            "experimentIds": .array(experiments.map { .string($0) }),
        ]
    }

    static func attributes(_ json: String) throws -> JSONObject {
        try object(JSONParser().parse(json))
    }

    static func isAdmitted(_ user: User, _ service: DecisionService) -> Bool {
        service.decide("flag", for: user)?.value.variation?.key == "on"
    }

    private static func object(_ value: JSONValue) throws -> JSONObject {
        try #require(value.object)
    }
}

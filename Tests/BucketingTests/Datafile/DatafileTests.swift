import Bucketing
import JSON
import TestSupport
import Testing

@Suite struct DatafileTests {
    static let wrong: [(change: String, problems: [String])] = [
        (#"[]"#, ["a datafile must be an object; got an array"]),
        (#"{"version":"3"}"#, ["`version` must be '4'; got '3', at /version"]),
        (#"{"version":4}"#, ["`version` must be a string; got a number, at /version"]),
        (#"{"projectId":null}"#, ["`projectId` must be a string; got null, at /projectId"]),
        (#"{"experiments":{}}"#, ["`experiments` must be an array; got an object, at /experiments"]),
        (#"{"experiments":[5]}"#, ["an element must be an object; got a number, at /experiments/0"]),
        (#"{"anonymizeIP":"yes"}"#, ["`anonymizeIP` must be a boolean; got a string, at /anonymizeIP"]),
        (
            #"{"attributes":[{"id":"1"}],"events":[{"id":"1","key":"e","experimentIds":[1]}]}"#,
            [
                "`key` is required, at /attributes/0",
                "an element must be a string; got a number, at /events/0/experimentIds/0",
            ]
        ),
        (
            #"{"experiments":[{"id":"1","key":"e","layerId":"","status":"Running","variations":[{"id":"2"}],"trafficAllocation":[{"entityId":"2","endOfRange":"x"}],"audienceIds":[],"forcedVariations":{"a/b":1}}]}"#,
            [
                "`endOfRange` must be a number; got a string, at /experiments/0/trafficAllocation/0/endOfRange",
                "`key` is required, at /experiments/0/variations/0",
                "a member must be a string; got a number, at /experiments/0/forcedVariations/a~1b",
            ]
        ),
        (
            #"{"audiences":[{"id":"1","name":"n","conditions":"[\"or\","}]}"#,
            [
                "`conditions` must be JSON: expected a value, got the end of the text (line 1, byte 6, in /1), at /audiences/0/conditions"
            ]
        ),
        (#"{"typedAudiences":[{"id":"1","name":"n"}]}"#, ["`conditions` is required, at /typedAudiences/0"]),
        (
            #"{"featureFlags":[{"id":"1","key":"f","experimentIds":["9"],"rolloutId":"8","variables":[]}]}"#,
            [
                "no experiment has the id '9', at /featureFlags/0/experimentIds/0",
                "no rollout has the id '8', at /featureFlags/0/rolloutId",
            ]
        ),
        (
            #"{"holdouts":[{"id":"1","key":"h","status":"Running","variations":[],"audienceIds":[]}]}"#,
            ["`trafficAllocation` is required, at /holdouts/0"]
        ),
    ]

    @Test(arguments: wrong)
    func `Every problem of a datafile is reported with its location`(change: String, problems: [String]) throws {
        var value = Datafile.empty(projectID: "1")
        let change = try JSONParser().parse(change)
        if var object = value.object, let members = change.object {
            for member in members {
                object[member.key] = member.value
            }
            value = .object(object)
        } else {
            value = change
        }
        let error = try #require(throws: DatafileError.self) { try Datafile(value) }
        #expect(error.problems.map(\.description) == problems)
    }

    @Test func `An empty object lacks every required member`() throws {
        let error = try #require(throws: DatafileError.self) { try Datafile([:]) }
        let missing = [
            "version", "accountId", "projectId", "revision", "attributes", "events", "audiences", "experiments",
            "groups",
        ]
        #expect(error.problems.map(\.reason) == missing.map { "`\($0)` is required" })
    }

    @Test func `A missing group is reported`() throws {
        var root = try #require(Datafile.empty(projectID: "1").object)
        var experiment = try #require(Self.experiment("e").object)
        experiment["groupId"] = "5"
        experiment["groupPolicy"] = "random"
        root["experiments"] = [.object(experiment)]
        let error = try #require(throws: DatafileError.self) { try Datafile(.object(root)) }
        #expect(error.description == "no group has the id '5', which the experiment 'e' names, at /groups")
    }

    @Test func `An experiment with audience conditions needs no list of audiences, one without them does`() throws {
        var root = try #require(try Vectors.datafile("datafile-hard-16.json").source.object)
        let complete = DecisionService(datafile: try Datafile(.object(root)))
        let experiments = (root["experiments"]?.array ?? []).compactMap(\.object)
        root["experiments"] = .array(
            experiments.map { experiment in
                var experiment = experiment
                experiment["audienceIds"] = nil
                return .object(experiment)
            })
        let without = DecisionService(datafile: try Datafile(.object(root)))
        for line in try Vectors.lines("hard-16.jsonl") {
            let user = User(id: Identifier(try line.string("userId")), attributes: try line.object("userAttributes"))
            let keys = without.decideAll(for: user).value.map { $0.variation?.key }
            #expect(keys == complete.decideAll(for: user).value.map { $0.variation?.key })
        }

        var bare = experiments[0]
        (bare["audienceIds"], bare["audienceConditions"]) = (nil, nil)
        root["experiments"] = [.object(bare)]
        let error = try #require(throws: DatafileError.self) { try Datafile(.object(root)) }
        #expect(error.description.contains("`audienceIds` is required, at /experiments/0"))
    }

    /// Any datafile is either compiled and can be decided on, or rejected with reasons.
    @Test func `Mutated datafiles never trap`() throws {
        let source = try Vectors.datafile("datafile-hard-0.json").source.encoded()
        var random = SeededGenerator(seed: 3)
        let pieces = [#"""#, "null", "-1", "1e300", "{}", "[]", "true", #""x""#].map { Array($0.utf8) }
        for _ in 0..<300 {
            var bytes = source
            let start = Int.random(in: bytes.indices, using: &random)
            let end = min(bytes.count, start + Int.random(in: 0..<6, using: &random))
            bytes.replaceSubrange(start..<end, with: pieces.randomElement(using: &random) ?? [])
            guard let value = try? JSONParser().parse(bytes) else { continue }
            do {
                let service = DecisionService(datafile: try Datafile(value))
                _ = service.decideAll(for: User(id: "u"), options: .includeReasons)
            } catch {
                #expect(!error.problems.isEmpty)
            }
        }
    }

    @Test func `The source is kept`() throws {
        let source = Datafile.empty(projectID: "1", sdkKey: "key")
        let datafile = try Datafile(source)
        #expect(datafile.source == source)
        #expect(datafile.sdkKey == "key")
    }

    static func experiment(_ key: String, id: String = "1") -> JSONValue {
        [
            "id": .string(id), "key": .string(key), "layerId": "", "status": "Running", "variations": [],
            "trafficAllocation": [], "audienceIds": [], "forcedVariations": [:],
        ]
    }
}

import Bucketing
import TestSupport
import Testing

@Suite struct DatafileTests {
    static let wrong: [(change: String, problems: [String])] = [
        (#"[]"#, ["must be an object, is an array"]),
        (#"{"version":"3"}"#, [#"/version: must be "4", is "3""#]),
        (#"{"version":4}"#, ["/version: must be a string, is a number"]),
        (#"{"projectId":null}"#, ["/projectId: must be a string, is null"]),
        (#"{"experiments":{}}"#, ["/experiments: must be an array, is an object"]),
        (#"{"experiments":[5]}"#, ["/experiments/0: must be an object, is a number"]),
        (#"{"anonymizeIP":"yes"}"#, ["/anonymizeIP: must be a boolean, is a string"]),
        (
            #"{"attributes":[{"id":"1"}],"events":[{"id":"1","key":"e","experimentIds":[1]}]}"#,
            [#"/attributes/0: "key" is missing"#, "/events/0/experimentIds/0: must be a string, is a number"]
        ),
        (
            #"{"experiments":[{"id":"1","key":"e","layerId":"","status":"Running","variations":[{"id":"2"}],"trafficAllocation":[{"entityId":"2","endOfRange":"x"}],"audienceIds":[],"forcedVariations":{"a/b":1}}]}"#,
            [
                "/experiments/0/trafficAllocation/0/endOfRange: must be a number, is a string",
                #"/experiments/0/variations/0: "key" is missing"#,
                "/experiments/0/forcedVariations/a~1b: must be a string, is a number",
            ]
        ),
        (
            #"{"audiences":[{"id":"1","name":"n","conditions":"[\"or\","}]}"#,
            ["/audiences/0/conditions: must hold JSON; line 1, byte 6 in /1: the text ends too early: expected a value"]
        ),
        (#"{"typedAudiences":[{"id":"1","name":"n"}]}"#, [#"/typedAudiences/0: "conditions" is missing"#]),
        (
            #"{"featureFlags":[{"id":"1","key":"f","experimentIds":["9"],"rolloutId":"8","variables":[]}]}"#,
            [
                #"/featureFlags/0/experimentIds/0: no experiment has the id "9""#,
                #"/featureFlags/0/rolloutId: no rollout has the id "8""#,
            ]
        ),
        (
            #"{"holdouts":[{"id":"1","key":"h","status":"Running","variations":[],"audienceIds":[]}]}"#,
            [#"/holdouts/0: "trafficAllocation" is missing"#]
        ),
    ]

    @Test(arguments: wrong)
    func everythingWrongIsNamedWithItsPlace(change: String, problems: [String]) throws {
        var value = DatafileEditor(projectID: "1").value
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

    @Test func anEmptyObjectLacksWhatTheSchemaDemands() throws {
        let error = try #require(throws: DatafileError.self) { try Datafile([:]) }
        let missing = ["version", "accountId", "projectId", "revision", "attributes", "events", "audiences", "experiments", "groups"]
        #expect(error.problems.map(\.reason) == missing.map { "\"\($0)\" is missing" })
    }

    @Test func aMissingGroupIsNamed() throws {
        var editor = DatafileEditor(projectID: "1")
        var experiment = try #require(Self.experiment("e").object)
        experiment["groupId"] = "5"
        experiment["groupPolicy"] = "random"
        editor.setExperiment(experiment)
        let error = try #require(throws: DatafileError.self) { try Datafile(editor.value) }
        #expect(error.description == #"/groups: has no group "5", which experiment "e" names"#)
    }

    /// Whatever a datafile contains, it is compiled or refused with reasons, and can be decided on.
    @Test func mutatedDatafilesNeverTrap() throws {
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

    @Test func theSourceIsKept() throws {
        let source = DatafileEditor(projectID: "1", sdkKey: "key").value
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

@Suite struct DatafileEditorTests {
    @Test func experimentsAreReplacedInPlaceAndTheRestIsKept() throws {
        let datafile = try Vectors.datafile("datafile-0.json")
        var editor = DatafileEditor(datafile)
        let key = try #require(datafile.experiments.first?.key)
        var experiment = try #require(editor.experiment(key: key))
        experiment["status"] = "Paused"
        experiment["unknown"] = [1]
        editor.setExperiment(experiment)
        let changed = try Datafile(editor.value)
        #expect(changed.experiment(key: key)?.isRunning == false)
        #expect(changed.experiments.map(\.id) == datafile.experiments.map(\.id))
        experiment = try #require(editor.experiment(key: key))
        #expect(experiment["unknown"] == [1])
        experiment["status"] = "Running"
        experiment["unknown"] = nil
        editor.setExperiment(experiment)
        #expect(editor.value == datafile.source)
    }

    @Test func anExperimentOfAGroupIsFoundThere() throws {
        let datafile = try #require(
            try (0..<10).map { try Vectors.datafile("datafile-\($0).json") }.first { !$0.groups.isEmpty }
        )
        let group = try #require(datafile.groups.first)
        let experiment = try #require(group.experimentIDs.first.flatMap(datafile.experiment(id:)))
        var editor = DatafileEditor(datafile)
        var object = try #require(editor.experiment(key: experiment.key))
        #expect(object["id"] == .string(experiment.id.string))
        object["status"] = "Archived"
        editor.setExperiment(object)
        let changed = try Datafile(editor.value)
        #expect(changed.experiment(key: experiment.key)?.status == "Archived")
        #expect(changed.experiments.count == datafile.experiments.count)
        #expect(changed.groups.first?.experimentIDs == group.experimentIDs)
    }

    @Test func newExperimentsComeLast() throws {
        var editor = DatafileEditor(projectID: "1")
        editor.setExperiment(try #require(DatafileTests.experiment("a", id: "1").object))
        editor.setExperiment(try #require(DatafileTests.experiment("b", id: "2").object))
        #expect(try Datafile(editor.value).experiments.map(\.key) == ["a", "b"])
    }

    @Test(arguments: [("0", "1"), ("41", "42"), ("x", "1"), ("9223372036854775807", "1")])
    func revisionsCountUp(former: String, raised: String) throws {
        var object = try #require(DatafileEditor(projectID: "1").value.object)
        object["revision"] = .string(former)
        var editor = DatafileEditor(try Datafile(.object(object)))
        editor.raiseRevision()
        #expect(try Datafile(editor.value).revision == raised)
    }
}

import Bucketing
import JSON
import Testing

/// What a datafile has in common with a former one is not compiled again, and nothing shows that.
@Suite struct SimilarDatafileTests {
    private static let experiment = """
        {"id":"e%","key":"k%","layerId":"e%","status":"Running","audienceIds":[],"forcedVariations":{},
        "variations":[{"id":"a%","key":"a","featureEnabled":true,"variables":[{"id":"v%","value":"1"}]},
        {"id":"b%","key":"b"}],"trafficAllocation":[{"entityId":"a%","endOfRange":5000}]}
        """
    private static let flag = """
        {"id":"f%","key":"k%","rolloutId":"","experimentIds":["e%"],
        "variables":[{"id":"v%","key":"value","type":"string","defaultValue":""}]}
        """

    private static func element(_ text: String, _ number: Int) -> JSONValue {
        (try? JSONParser().parse(text.replacing("%", with: "\(number)"))) ?? .null
    }

    private static func datafile(_ numbers: [Int]) -> JSONObject {
        var root = Datafile.empty(projectID: "p").object ?? JSONObject()
        root["experiments"] = .array(numbers.map { element(experiment, $0) })
        root["featureFlags"] = .array(numbers.map { element(flag, $0) })
        return root
    }

    /// All that two datafiles decide, and what they show of their elements.
    private func description(of datafile: Datafile) -> [String] {
        let service = DecisionService(datafile: datafile)
        var lines = datafile.flags.map { "\($0.key) \($0.experiments.map(\.key)) \($0.variations.map(\.id))" }
        lines += datafile.experiments.map { "\($0.key) \($0.id) \($0.status) \($0.variations.map(\.key))" }
        let attributes: JSONValue = ["country": "de"]
        for user in 0..<6 {
            let user = User(id: Identifier("user\(user)"), attributes: attributes.object ?? JSONObject())
            for flag in datafile.flags {
                let decision = service.decide(flag.key, for: user)
                lines.append("\(flag.key) \(String(describing: decision))")
            }
        }
        return lines
    }

    private func edited(_ change: (inout JSONObject, inout [JSONValue], inout [JSONValue]) -> Void) -> JSONValue {
        var object = Self.datafile(Array(0..<6))
        var experiments = object["experiments"]?.array ?? []
        var flags = object["featureFlags"]?.array ?? []
        change(&object, &experiments, &flags)
        object["experiments"] = .array(experiments)
        object["featureFlags"] = .array(flags)
        return .object(object)
    }

    private func set(_ value: JSONValue, _ key: String, in element: inout JSONValue) {
        var object = element.object ?? JSONObject()
        object[key] = value
        element = .object(object)
    }

    private enum Edit: CaseIterable {
        case nothing, status, removed, added, first, reversed, moved, sharedVariation, sharedID, sharedKey, audience
        case group, holdout, flagText, rollout
    }

    private func source(of edit: Edit) -> JSONValue {
        edited { root, experiments, flags in
            switch edit {
            case .nothing: break
            case .status: set("Paused", "status", in: &experiments[2])
            case .removed:
                experiments.remove(at: 3)
                flags.remove(at: 3)
            case .added:
                experiments.append(Self.element(Self.experiment, 9))
                flags.append(Self.element(Self.flag, 9))
            case .first: experiments.insert(Self.element(Self.experiment, 9), at: 0)
            case .reversed: experiments.reverse()
            case .moved: experiments.swapAt(1, 4)
            case .sharedVariation:
                set(
                    [
                        [
                            "id": "a2", "key": "x", "featureEnabled": true,
                            "variables": [["id": "v2", "value": "shared"]],
                        ]
                    ],
                    "variations", in: &experiments[4])
            case .sharedID: set("e1", "id", in: &experiments[3])
            case .sharedKey: set("k1", "key", in: &experiments[3])
            case .audience:
                root["typedAudiences"] = [
                    [
                        "id": "de", "name": "de",
                        "conditions": ["type": "custom_attribute", "name": "country", "match": "exact", "value": "us"],
                    ]
                ]
                set(["de"], "audienceIds", in: &experiments[5])
            case .group:
                root["groups"] = [
                    [
                        "id": "g", "policy": "random", "trafficAllocation": [["entityId": "e0", "endOfRange": 3000]],
                        "experiments": [experiments[0]],
                    ]
                ]
                experiments.removeFirst()
            case .holdout:
                root["holdouts"] = [
                    [
                        "id": "h", "key": "h", "status": "Running", "audienceIds": [],
                        "variations": [["id": "hv", "key": "off"]],
                        "trafficAllocation": [["entityId": "hv", "endOfRange": 5000]],
                    ]
                ]
            case .flagText: set("other", "rolloutName", in: &flags[2])
            case .rollout:
                root["rollouts"] = [["id": "r", "experiments": [Self.element(Self.experiment, 8)]]]
                set("r", "rolloutId", in: &flags[1])
            }
        }
    }

    @Test func `A datafile that is compiled after another one is as if it were alone`() throws {
        let all = Edit.allCases.map { source(of: $0) }
        for source in all where (try? Datafile(source)) != nil {
            let alone = description(of: try Datafile(source))
            for other in all {
                guard let former = try? Datafile(other) else { continue }
                #expect(description(of: try Datafile.compile(source, similarTo: former)) == alone)
                // What was compiled so serves the next one.
                let next = try Datafile.compile(other, similarTo: try Datafile(source, similarTo: former))
                #expect(description(of: next) == description(of: former))
            }
        }
    }

    @Test func `What stays is the same object, and what changes is not`() throws {
        let former = try Datafile(source(of: .nothing))
        let latter = try Datafile.compile(source(of: .status), similarTo: former)
        for (index, (old, new)) in zip(former.experiments, latter.experiments).enumerated() {
            #expect((old === new) == (index != 2))
        }
        for (index, (old, new)) in zip(former.flags, latter.flags).enumerated() {
            #expect((old === new) == (index != 2))
        }
    }

    @Test func `A reference to what is gone is an error, though the flag stays`() throws {
        let former = try Datafile(source(of: .nothing))
        let broken = edited { _, experiments, _ in experiments.removeLast() }
        let alone = #expect(throws: DatafileError.self) { try Datafile(broken) }
        let error = #expect(throws: DatafileError.self) { try Datafile.compile(broken, similarTo: former) }
        #expect(error == alone)
        #expect(error?.problems.map(\.pointer.string) == ["/featureFlags/5/experimentIds/0"])
    }
}

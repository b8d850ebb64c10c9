import Bucketing
import JSON
import Testing

/// Decisions equal those of the reference SDK.
@Suite struct DecisionVectorTests {
    static let files = 0..<10

    @Test(arguments: files)
    func `Decisions equal those of the reference SDK`(file: Int) throws {
        let service = DecisionService(datafile: try Vectors.datafile("datafile-\(file).json"))
        for line in try Vectors.lines("decisions-\(file).jsonl") {
            let user = User(id: Identifier(try line.string("userId")), attributes: try line.object("userAttributes"))
            try expect(service.decideAll(for: user).value, equal: line.object("decisions"), for: user)
        }
    }

    @Test(arguments: files)
    func `Assignments are kept as in the reference SDK`(file: Int) throws {
        let before = DecisionService(datafile: try Vectors.datafile("datafile-\(file).json"))
        let after = DecisionService(datafile: try Vectors.datafile("datafile-\(file)-changed.json"))
        for line in try Vectors.lines("sticky-\(file).jsonl") {
            var user = User(id: Identifier(try line.string("userId")), attributes: try line.object("userAttributes"))
            var profile: [Identifier: StoredAssignment] = [:]
            let first = before.decideAll(for: user, stored: profile)
            try expect(first.value, equal: line.object("before"), for: user)
            profile.store(first.newAssignments)
            #expect(profile == Self.profile(line["profileBefore"]), "\(user.id)")

            user.attributes = try line.object("userAttributesAfter")
            let second = after.decideAll(for: user, stored: profile)
            try expect(second.value, equal: line.object("after"), for: user)
            profile.store(second.newAssignments)
            #expect(profile == Self.profile(line["profileAfter"]), "\(user.id)")
        }
    }

    private func expect(_ decisions: [Decision], equal expected: JSONObject, for user: User) throws {
        #expect(decisions.count == expected.count)
        for decision in decisions {
            let wanted = try expected.object(decision.flagKey.string)
            var found = JSONObject()
            found["variationKey"] = .string(decision.variation?.key.string ?? "")
            found["enabled"] = .bool(decision.isEnabled)
            found["ruleKey"] = .string(decision.ruleKey?.string ?? "")
            var variables = JSONObject()
            for variable in decision.variables {
                variables[variable.key.string] = variable.value
            }
            found["variables"] = .object(variables)
            #expect(found == wanted, "\(user.id) \(decision.flagKey)")
        }
    }

    private static func profile(_ value: JSONValue?) -> [Identifier: StoredAssignment] {
        var profile: [Identifier: StoredAssignment] = [:]
        for member in value?.object?["experiment_bucket_map"]?.object ?? JSONObject() {
            let id = member.value.object?["variation_id"]?.string ?? ""
            profile[Identifier(member.key)] = StoredAssignment(variationID: Identifier(id))
        }
        return profile
    }
}

extension [Identifier: StoredAssignment] {
    mutating func store(_ assignments: [NewAssignment]) {
        for assignment in assignments {
            self[assignment.experimentID] = StoredAssignment(variationID: assignment.variationID)
        }
    }
}

import JSON
import TestSupport
import Testing

@testable import Definitions

/// What a body asks for, beside what is shown already.
@Suite struct DefinitionChangesTests {
    private static let shown: JSONValue = [
        "key": "e", "traffic": 50, "status": "archived", "tags": ["a", "b"], "sdk_key": "shop",
        "audience": ["name": "plan", "value": 1.0], "weights": ["off": 1, "on": 3],
    ]

    static let bodies: [(body: JSONValue, changes: JSONValue)] = [
        (shown, [:]), ([:], [:]), ("text", "text"), ([1], [1]),
        (["traffic": 50.0, "audience": ["value": 1, "name": "plan"]], [:]),
        (["traffic": 51], ["traffic": 51]), (["tags": ["b", "a"]], ["tags": ["b", "a"]]),
        (["traffic": nil], ["traffic": nil]), (["unknown": 1], ["unknown": 1]),
        // The first variation is the baseline.
        (["weights": ["on": 3, "off": 1]], [:]),
        (["rule": ["weights": ["on": 3, "off": 1]]], ["rule": ["weights": ["on": 3, "off": 1]]]),
        // A change of what is archived says that it stays so.
        (["status": "archived", "traffic": 5], ["traffic": 5, "status": "archived"]),
        (["status": "archived", "traffic": 50], [:]),
    ]

    @Test(arguments: bodies)
    func `Members with the shown value ask for nothing`(body: JSONValue, changes: JSONValue) {
        #expect(DefinitionChanges(of: Self.shown).members(of: body) == changes)
    }

    @Test(
        arguments: [
            ([1, 2], [1.0, 2.0], true), ([1, 2], [2, 1], false), (["a": 1, "b": 2], ["b": 2, "a": 1], true),
            (["a": 1], ["a": 1, "b": nil], false), ("1", 1, false), (nil, false, false),
            (["weights": ["a": 1, "b": 2]], ["weights": ["b": 2, "a": 1]], false),
            ([["weights": ["a": 1, "b": 2]]], [["weights": ["a": 1.0, "b": 2]]], true),
        ] as [(JSONValue, JSONValue, Bool)])
    func `Values are compared by what they mean`(left: JSONValue, right: JSONValue, areSame: Bool) {
        #expect(DefinitionChanges.areSame(left, right) == areSame)
        #expect(DefinitionChanges.areSame(right, left) == areSame)
    }

    @Test func `What was read from another project is refused`() throws {
        let changes = DefinitionChanges(of: Self.shown)
        for body in [["sdk_key": "shop"], ["traffic": 5], 7] as [JSONValue] {
            #expect(throws: Never.self) { try changes.checkProject(of: body) }
        }
        let refusal = try #require(throws: CoreError.self) { try changes.checkProject(of: ["sdk_key": "app"]) }
        #expect(
            refusal.detail == "`sdk_key` must be that of the project that the request names, 'shop'; got 'app'")
        #expect(refusal.kind == .invalid && refusal.pointer?.string == "/sdk_key")
    }
}

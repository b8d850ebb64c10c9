import Bucketing
import Definitions
import DefinitionsTestSupport
import HoldfastCore
import JSON
import Storage
import Testing

/// What the definition of an attribute may be.
@Suite struct AttributeDefinitionTests {
    static let wrong: [(body: JSONValue, place: String, text: String)] = [
        ([:], "/type", "`type` is required"), ([], "", "an attribute must be an object; got an array"),
        (["type": "strng"], "/type", "got 'strng'; did you mean 'string'?"),
        (["type": "number", "values": ["a"]], "/values", "`values` requires the type selection; got number"),
        (["type": "number", "multiple": true], "/multiple", "`multiple` requires the type selection; got number"),
        (["type": "number", "min": 1], "/min", "an attribute must have no members but `name`, `type`, `values`"),
        (["type": "number", "name": "other"], "/name", "`name` must be the name in the path, 'new'; got 'other'"),
        (["type": "selection"], "/values", "`values` must be an array of 1 to"),
        (["type": "selection", "values": []], "/values", "got 0 elements"),
        (["type": "selection", "values": ["a", "a"]], "/values/1", "the values must differ; got 'a' twice"),
        (["type": "selection", "values": ["a", ""]], "/values/1", "must be a string of 1 to 255 bytes; got 0 bytes"),
        (["type": "selection", "values": [1]], "/values/0", "got a number"),
        (["type": "selection", "values": ["a;b"], "multiple": true], "/values/0", "must not contain a semicolon"),
        (["type": "selection", "values": [" a"], "multiple": true], "/values/0", "got ' a'"),
        (["type": "selection", "values": ["a"], "multiple": 1], "/multiple", "must be true or false; got a number"),
    ]

    @Test(arguments: wrong)
    func `A wrong definition is refused with the place of what is wrong`(body: JSONValue, place: String, text: String)
        throws
    {
        let refusal = try #require(throws: CoreError.self) { try AttributeDefinition(body, name: "new") }
        #expect(refusal.kind == .invalid && refusal.pointer?.string == place)
        #expect(refusal.detail.contains(text), "\(refusal)")
    }

    @Test func `Blanks and semicolons are values of an attribute that has one value`() throws {
        let definition = try AttributeDefinition(["type": "selection", "values": [" a", "b;c"]], name: "new")
        #expect(definition.json["values"] == [" a", "b;c"])
    }
}

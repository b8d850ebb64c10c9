import JSON
import TestSupport
import Testing

@Suite struct JSONWriterTests {
    static let texts: [(JSONValue, String)] = [
        (nil, "null"),
        (true, "true"),
        (.integer(.min), "-9223372036854775808"),
        (.number(1), "1.0"),
        (.number(0.1), "0.1"),
        (.number(1e22), "1e+22"),
        (.number(-1.5e-7), "-1.5e-07"),
        (.number(.infinity), "null"),
        ("a\"\\/\u{8}\u{C}\n\r\t\u{0}\u{1F}\u{7F}é😀", "\"a\\\"\\\\/\\b\\f\\n\\r\\t\\u0000\\u001f\u{7F}é😀\""),
        ([], "[]"),
        ([1, [], [nil, "x"]], "[1,[],[null,\"x\"]]"),
        ([:], "{}"),
        (["b": [:], "a\n": [1]], "{\"b\":{},\"a\\n\":[1]}"),
    ]

    @Test(arguments: texts)
    func `JSON is written without white space`(value: JSONValue, text: String) {
        #expect(String(decoding: value.encoded(), as: UTF8.self) == text)
    }

    /// At any position of a text, and in any number.
    @Test func `Only characters that need it are escaped`() throws {
        var random = SeededGenerator(seed: 11)
        let characters: [Character] = [
            "a", " ", "!", "#", "[", "]", "\u{7F}", "é", "😀", "\"", "\\", "\u{0}", "\u{1F}", "\n",
        ]
        for _ in 0..<5_000 {
            let text = String(
                (0..<Int.random(in: 0...40, using: &random)).map { _ in
                    Int.random(in: 0..<4, using: &random) > 0 ? "x" : characters.randomElement(using: &random) ?? "x"
                })
            let json = JSONValue.string(text).encoded()
            #expect(try JSONParser().parse(json) == .string(text))
            let escapes = text.utf8.count { $0 < 0x20 || $0 == UInt8(ascii: "\"") || $0 == UInt8(ascii: "\\") }
            if escapes == 0 { #expect(json.count == text.utf8.count + 2) }
            #expect(json.dropFirst().dropLast().allSatisfy { $0 >= 0x20 })
        }
    }

    @Test func `The output can be taken in pieces`() {
        var writer = JSONWriter(capacity: 1)
        writer.beginArray()
        writer.integer(1)
        var text = writer.take()
        writer.string("two")
        writer.endArray()
        writer.endLine()
        #expect(writer.count == 8)
        text += writer.finish()
        #expect(String(decoding: text, as: UTF8.self) == "[1,\"two\"]\n")
    }

    @Test func `Keys are sorted by bytes if requested`() throws {
        let value = try JSONParser().parse(#"[{"b":1,"é":{"z":1,"a":2},"B":3}]"#)
        let text = String(decoding: value.encoded(sortingKeys: true), as: UTF8.self)
        #expect(text == #"[{"B":3,"b":1,"é":{"a":2,"z":1}}]"#)
    }

    @Test func `JSON is written piece by piece`() {
        var writer = JSONWriter(appendingTo: Array("> ".utf8))
        writer.beginObject()
        writer.key("list")
        writer.beginArray()
        writer.integer(1)
        writer.raw("{\"cached\":true}")
        writer.endArray()
        writer.key("name")
        writer.string("x")
        writer.endObject()
        #expect(String(decoding: writer.finish(), as: UTF8.self) == #"> {"list":[1,{"cached":true}],"name":"x"}"#)
    }
}

@Suite struct JSONObjectTests {
    @Test func `Setting a member keeps its position`() throws {
        var object = try #require(try JSONParser().parse(#"{"a":1,"b":2}"#).object)
        object["a"] = 3
        object["c"] = 4
        object["b"] = nil
        object["d"] = nil
        #expect(JSONValue.object(object) == ["a": 3, "c": 4])
    }

    @Test func `Many members are found like few`() throws {
        var object = JSONObject()
        for number in 0..<100 { object["k\(number)"] = .integer(Int64(number)) }
        object["k50"] = "changed"
        for number in stride(from: 0, to: 100, by: 3) { object["k\(number)"] = nil }
        #expect(object.count == 66)
        #expect(object["k50"] == "changed")
        #expect(object["k51"] == nil)
        #expect(object["k98"] == 98)
        let parsed = try JSONParser().parse(JSONValue.object(object).encoded()).object
        #expect(parsed == object)
        #expect(object.allSatisfy { parsed?[$0.key] == $0.value })
        for member in object.members.dropFirst() { object[member.key] = nil }
        #expect(JSONValue.object(object) == ["k1": 1])
    }

    @Test func `Equality is that of the JSON text`() {
        #expect(JSONValue.integer(1) != .number(1))
        #expect(JSONValue.string("é") != .string("e\u{301}"))
        #expect(JSONValue.integer(1).double == JSONValue.number(1).double)
    }

    @Test func `Keys are compared by bytes`() {
        var object = JSONObject()
        object["é"] = 1
        #expect(object["e\u{301}"] == nil)
    }
}

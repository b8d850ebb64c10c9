import JSON
import TestSupport
import Testing

@Suite struct JSONParserTests {
    static let readable: [(String, JSONValue)] = [
        ("null", .null),
        (" \t\r\n true ", .bool(true)),
        ("false", .bool(false)),
        ("0", .integer(0)),
        ("-0", .integer(0)),
        ("9223372036854775807", .integer(.max)),
        ("-9223372036854775808", .integer(.min)),
        ("9223372036854775808", .number(9_223_372_036_854_775_808)),
        ("1.0", .number(1)),
        ("-1.5e-3", .number(-0.0015)),
        ("1E2", .number(100)),
        ("0e0", .number(0)),
        ("1e-400", .number(0)),
        ("\"\"", .string("")),
        (#""\"\\\/\b\f\n\r\t""#, .string("\"\\/\u{8}\u{C}\n\r\t")),
        (#""a\u00e9b\u20AC""#, .string("aéb€")),
        (#""\ud83d\ude00""#, .string("😀")),
        (#""\u0000""#, .string("\0")),
        ("\"é😀\u{7F}\"", .string("é😀\u{7F}")),
        ("[]", .array([])),
        ("[1, [2,\n[]]]", .array([.integer(1), .array([.integer(2), .array([])])])),
        ("{}", .object(JSONObject())),
        (#"{"b":1,"a":{"c":null}}"#, ["b": 1, "a": ["c": nil]]),
        (#"{"a":1,"b":2,"a":3}"#, ["a": 3, "b": 2]),
    ]

    @Test(arguments: readable)
    func `Valid JSON is parsed`(text: String, expected: JSONValue) throws {
        #expect(try JSONParser().parse(text) == expected)
    }

    static let unreadable: [(text: String, offset: Int, pointer: String)] = [
        ("", 0, ""), ("  ", 2, ""), ("nul", 0, ""), ("nulL", 0, ""), ("True", 0, ""), ("NaN", 0, ""),
        ("Infinity", 0, ""), ("-Infinity", 1, ""), ("01", 0, ""), ("-01", 1, ""), ("+1", 0, ""), (".5", 0, ""),
        ("1.", 2, ""), ("1e", 2, ""), ("1e+", 3, ""), ("-", 1, ""), ("1e400", 0, ""), ("0x10", 1, ""),
        ("1 2", 2, ""), ("{} x", 3, ""), ("null\0", 4, ""), ("\u{FEFF}1", 0, ""), ("'a'", 0, ""),
        ("\"", 1, ""), ("\"a", 2, ""), ("\"\n\"", 1, ""), ("\"a\u{1F}\"", 2, ""), (#""\x""#, 1, ""),
        (#""\"#, 1, ""), (#""\u12"#, 5, ""), (#""\u12g4""#, 5, ""), (#""\ud800""#, 1, ""), (#""\ud800\n""#, 1, ""),
        (#""\ud800\u0041""#, 1, ""), (#""\udc00""#, 1, ""), (#""\ud800\ud800""#, 1, ""),
        ("[", 1, "/0"), ("[1", 2, ""), ("[1,", 3, "/1"), ("[1,]", 3, "/1"), ("[1 2]", 3, ""), ("[,1]", 1, "/0"),
        ("[1}", 2, ""), ("]", 0, ""), ("{", 1, ""), ("{\"a\"", 4, ""), ("{\"a\" 1}", 5, ""), ("{\"a\":", 5, "/a"),
        ("{\"a\":1,}", 7, ""), ("{a:1}", 1, ""), ("{1:1}", 1, ""), ("{\"a\":1]", 6, ""),
        (#"{"a/b":[0,{"~":tru}]}"#, 15, "/a~1b/1/~0"),
    ]

    @Test(arguments: unreadable)
    func `Invalid JSON is rejected`(text: String, offset: Int, pointer: String) throws {
        let error = try #require(throws: JSONError.self) { try JSONParser().parse(text) }
        #expect(error.offset == offset)
        #expect(error.pointer.string == pointer)
        #expect(!error.message.isEmpty)
    }

    static let invalidUTF8: [(bytes: [UInt8], offset: Int)] = [
        ([0x80], 1), ([0x61, 0xC3], 2), ([0xC0, 0x80], 1), ([0xED, 0xA0, 0x80], 1), ([0xF4, 0x90, 0x80, 0x80], 1),
        ([0xFF], 1), ([0xC3, 0xA9, 0xE2, 0x82], 3), ([0x5C, 0x6E, 0xFF], 3),
    ]

    @Test(arguments: invalidUTF8)
    func `Invalid UTF-8 is rejected`(bytes: [UInt8], offset: Int) throws {
        let quote = UInt8(ascii: "\"")
        let error = try #require(throws: JSONError.self) { try JSONParser().parse([quote] + bytes + [quote]) }
        #expect(error.message == "expected UTF-8")
        #expect(error.offset == offset)
    }

    @Test func `An error names the line`() throws {
        let error = try #require(throws: JSONError.self) { try JSONParser().parse("{\n\"a\": 1,\n\"b\": x}") }
        #expect(error.line == 3)
        #expect(error.description == "expected a value (line 3, byte 15, in /b)")
    }

    @Test(arguments: [#"["a"#, #"["a\n"#])
    func `An error names the missing end of a string`(text: String) throws {
        let error = try #require(throws: JSONError.self) { try JSONParser().parse(text) }
        #expect(error.message == "expected a double quote that ends the string, got the end of the text")
    }

    @Test func `Nesting is limited`() throws {
        func nested(_ depth: Int) -> String {
            String(repeating: "[", count: depth) + String(repeating: "]", count: depth)
        }
        #expect(throws: Never.self) { try JSONParser().parse(nested(128)) }
        #expect(throws: JSONError.self) { try JSONParser().parse(nested(129)) }
        #expect(throws: Never.self) {
            try JSONParser(maximumDepth: 2).parse("[[], {\"a\": []}]".replacing("[]}", with: "1}"))
        }
        #expect(throws: JSONError.self) { try JSONParser(maximumDepth: 2).parse("[[], {\"a\": []}]") }
    }

    @Test func `Duplicate keys are rejected if requested`() throws {
        let parser = JSONParser(duplicateKeys: .refused)
        let error = try #require(throws: JSONError.self) { try parser.parse(#"{"a":{"b":1,"c":2,"b":3}}"#) }
        #expect(error.pointer == ["a", "b"])
        #expect(error.offset == 18)
        #expect(throws: Never.self) { try parser.parse(#"{"é":1,"e\#u{301}":2}"#) }
    }

    @Test func `Duplicates are found among many keys`() throws {
        let members = (0..<100).map { "\"key\($0)\":\($0)" }.joined(separator: ",")
        let value = try JSONParser().parse("{\(members),\"key7\":\"last\",\"key50\":\"last\"}")
        let object = try #require(value.object)
        #expect(object.count == 100)
        #expect(object.members[7] == JSONObject.Member(key: "key7", value: "last"))
        #expect(object["key50"] == "last")
        #expect(object["key99"] == 99)
    }

    /// Any bytes are parsed or rejected, and a parsed value is written as JSON that parses to an equal value.
    @Test func `Mutated texts never trap, and parsed ones survive a round trip`() throws {
        let seed = Array(
            #"{"user_id":"é\ud83d\ude00","experiment_bucket_map":{"1":{"variation_id":"2"}},"x":[-1.5e3,true,null]}"#
                .utf8)
        let alphabet = Array("{}[]\",:\\u0d8e+-.tfn \n".utf8) + [0x00, 0x80, 0xC3, 0xED, 0xFF]
        var random = SeededGenerator(seed: 42)
        var accepted = 0
        for _ in 0..<4_000 {
            var bytes = seed
            for _ in 0..<Int.random(in: 1...3, using: &random) {
                let index = bytes.indices.randomElement(using: &random) ?? 0
                switch Int.random(in: 0..<3, using: &random) {
                case 0: bytes[index] = alphabet.randomElement(using: &random) ?? 0
                case 1: bytes.remove(at: index)
                default: bytes.insert(alphabet.randomElement(using: &random) ?? 0, at: index)
                }
            }
            guard let value = try? JSONParser().parse(bytes) else { continue }
            accepted += 1
            #expect(try JSONParser().parse(value.encoded()) == value)
        }
        #expect(accepted > 100)
    }

    @Test func `A character is read and written alike at every place of a string`() throws {
        for length in 0..<20 {
            for place in 0...length {
                let (before, behind) = (
                    String(repeating: "x", count: place), String(repeating: "y", count: length - place)
                )
                for (json, character) in [
                    (#"\n"#, "\n"), (#"\""#, "\""), (#"\\"#, "\\"), ("é", "é"), ("\u{7F}", "\u{7F}"), ("😀", "😀"),
                ] {
                    let text = Array("\"\(before)\(json)\(behind)\"".utf8)
                    let value = JSONValue.string(before + character + behind)
                    #expect(try JSONParser().parse(text) == value)
                    #expect(value.encoded() == text)
                }
                #expect(throws: JSONError.self) { try JSONParser().parse(Array("\"\(before)\u{1F}\(behind)\"".utf8)) }
                #expect(throws: JSONError.self) { try JSONParser().parse(Array("\"\(before)\(behind)".utf8)) }
                let broken = Array("\"\(before)".utf8) + [0xC3] + Array("\(behind)\"".utf8)
                #expect(throws: JSONError.self) { try JSONParser().parse(broken) }
            }
        }
    }
}

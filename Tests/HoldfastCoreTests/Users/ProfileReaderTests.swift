import Bucketing
import Definitions
import JSON
import Storage
import Testing

@testable import HoldfastCore

/// The formats of other systems, read in pieces of any size.
@Suite struct ProfileReaderTests {
    /// Reads a text in pieces of 1, 7 and many bytes, and expects the same each time.
    private func read(_ text: String, _ make: () throws -> any ProfileReader) throws -> [String] {
        let results = try [1, 7, 1_000_000].map { size -> [String] in
            var reader = try make()
            var found: [String] = []
            let report: (ImportedElement) -> Void = { found.append(Self.describe($0)) }
            var rest = Array(text.utf8)[...]
            while !rest.isEmpty {
                Array(rest.prefix(size)).withUnsafeBytes { reader.append($0, report) }
                rest = rest.dropFirst(size)
            }
            reader.end(report)
            return found + reader.notes
        }
        #expect(results.dropFirst().allSatisfy { $0 == results[0] })
        return results[0]
    }

    /// "2 ann 77=b 78=c", or the line and the error; "2#1" is the first element of an array, on the second line.
    private static func describe(_ element: ImportedElement) -> String {
        let place = "\(element.place.line)\(element.place.element.map { "#\($0)" } ?? "")"
        switch element.content {
        case .refused(let error): return "\(place) \(error)"
        case .profile(let profile):
            let map = profile.assignments.entries.map { " \($0.experimentID)=\($0.variationID)" }.joined()
            return "\(place) \(profile.userID)\(map)"
        }
    }

    private func names() throws -> ExperimentNames {
        let text = """
            {"version":"4","accountId":"1","projectId":"2","revision":"1","attributes":[],"audiences":[],"groups":[],
            "featureFlags":[],"rollouts":[],"events":[],
            "experiments":[{"id":"7","key":"checkout","layerId":"8","status":"Running","audienceIds":[],
            "forcedVariations":{},"variations":[{"id":"71","key":"control"},{"id":"72","key":"new"}],
            "trafficAllocation":[]}]}
            """
        return ExperimentNames([try Datafile(try JSONParser().parse(text))])
    }

    // MARK: Lines and pairs

    @Test func `Lines of profiles are numbered, and blank ones are skipped`() throws {
        let text = """
            {"user_id":"ann","experiment_bucket_map":{"77":{"variation_id":"b"}}}

            {"user_id":"bob"}
            """
        #expect(
            try read(text) { ProfileLines() } == [
                "1 ann 77=b", "3 `experiment_bucket_map` is required, at /experiment_bucket_map",
            ])
    }

    @Test func `Pairs of lines are user ids and maps`() throws {
        let text = """
            ann
            {"77":{"variation_id":"b"},"78":{"variation_id":"c"}}
            {odd
            {"77":{"variation_id":"b"}}
            gone

            bob
            7

            {"77":{"variation_id":"b"}}
            cy
            {"7 7":{"variation_id":"b"}}
            dan
            """
        #expect(
            try read(text) { RedisProfiles() } == [
                "1 ann 77=b 78=c", "3 {odd 77=b",
                "7 the value of a key must be a profile's map as a JSON object; got '7'",
                "10 a key must be a user id, followed by a line with its value; got a value",
                "11 an experiment id must consist of ASCII letters and digits; got '7 7', at /7 7",
                "13 a line with the value of the key must follow; the input ends",
            ])
    }

    @Test func `A user id with a line feed costs one pair, not all that follow`() throws {
        let text = #"""
            two
            lines
            {"77":{"variation_id":"a"}}
            ann
            {"77":{"variation_id":"b"}}
            bob
            {"77":{"variation_id":"c"}}
            """#
        #expect(
            try read(text) { RedisProfiles() } == [
                "1 the value of a key must be a profile's map as a JSON object; got 'lines'",
                "3 a key must be a user id, followed by a line with its value; got a value", "4 ann 77=b", "6 bob 77=c",
            ])
    }

    // MARK: Delimited

    @Test func `Records have named columns, quotes, and line ends of any kind`() throws {
        let text =
            "\u{FEFF}user_id,since,experiment_id,variation_id\r\nann,2026,77,b\r\n\r\n\"b \"\"o\"\" b\",\"x\ny\",77,\"a\"\n"
            + "cy,1,77\ndan,1,7-7,a\n\"eve\" ,1,77,a\nfay,1,77,\"a\"\r\r\n\"flo\"\r\"x\",1,77,a\n\"gus,1"
        #expect(
            try read(text) { try DelimitedProfiles(.init(), names: try names()) } == [
                "2 ann 77=b", #"4 b "o" b 77=a"#, "6 a record must have 4 fields, as the header; got 3",
                "7 an experiment id must consist of ASCII letters and digits; got '7-7'",
                "8 a delimiter or the end of the line must follow a quoted field", "9 fay 77=a",
                "10 a delimiter or the end of the line must follow a quoted field",
                "11 a quoted field must be closed by a quotation mark; the input ends",
            ])
    }

    @Test func `Columns may have other names, no header, and keys instead of ids`() throws {
        var options = DelimitedProfiles.Options()
        options.header = ["uid", "experiment", "variation"]
        options.columns = ["user_id": "uid"]
        options.delimiter = UInt8(ascii: "\t")
        let text = "ann\tcheckout\tnew\nbob\t7\t71\ncy\tother\tnew\ndan\tcheckout\tnewer\neve\tcheckout\t0"
        #expect(
            try read(text) { try DelimitedProfiles(options, names: try names()) } == [
                "1 ann 7=72", "2 bob 7=71",
                "3 the experiment must be one of the database's; got 'other'; create it first",
                "4 the variation must be one of the experiment 'checkout': control (id 71), new (id 72); got 'newer'",
                "5 the variation must be one of the experiment 'checkout': control (id 71), new (id 72); got '0'",
            ])
    }

    @Test(arguments: [
        ("a,b", "the header must have a column user_id; it has a, b"),
        (
            "user_id,experiment_id,variation",
            "the header must have the columns experiment_id and variation_id, or experiment and variation, "
                + "or experiment_bucket_map; it has user_id, experiment_id, variation"
        ),
    ])
    func `A header that lacks a column is refused once, not every record`(header: String, reason: String) throws {
        let found = try read("\(header)\nann,1,2\nbob,1,2\n") { try DelimitedProfiles(.init(), names: try names()) }
        #expect(found == ["1 \(reason)"])
    }

    @Test func `Maps may be JSON or CQL, with a backslash before quotation marks`() throws {
        var options = DelimitedProfiles.Options()
        options.escapesByBackslash = true
        let text = #"""
            user_id,experiment_bucket_map
            ann,"{'77': {'variation_id': 'b'}, '78': {variation_id: 'it''s'}}"
            bob,{'77': 'a'}
            cy,{\"77\": {\"variation_id\": \"a\"}}
            dan,"{\"77\": {\"variation_id\": \"a\"}, \"78\": {\"variation_id\": \"b\"}}"
            eve,{}
            fay,{'77': {'variation_id': 'b'}
            gus,{'7 7': 'b'}
            a\,b,{'77': 'a'}
            """#
        let found = try read(text) { try DelimitedProfiles(options, names: try names()) }
        #expect(
            found.filter { !$0.hasPrefix("7 ") } == [
                "2 ann 77=b 78=it's", "3 bob 77=a", "4 cy 77=a", "5 dan 77=a 78=b", "6 eve",
                "8 an experiment id must consist of ASCII letters and digits; got '7 7', at /7 7", "9 a,b 77=a",
            ])
        #expect(found.contains { $0.hasPrefix("7 experiment_bucket_map must be JSON") })
    }

    @Test func `A quotation mark that is never closed costs a bounded part of the input`() throws {
        let rows = String(repeating: "ann,77,b\n", count: 150_000)
        var reader = try DelimitedProfiles(.init(), names: try names())
        var found: [String] = []
        let text = "user_id,experiment_id,variation_id\n\"never closed\n" + rows
        Array(text.utf8).withUnsafeBytes { reader.append($0) { found.append(Self.describe($0)) } }
        reader.end { found.append(Self.describe($0)) }
        #expect(found.first?.hasPrefix("2 a record must be at most 1048576 bytes long; a quotation mark") == true)
        #expect(found.count > 30_000 && found.dropFirst().allSatisfy { $0.hasSuffix("ann 77=b") })
    }

    // MARK: GrowthBook

    @Test(arguments: [false, true])
    func `Documents are mapped by keys or places, and the greatest version counts`(isArray: Bool) throws {
        let documents = [
            #"{"attributeName":"id","attributeValue":"ann","assignments":{"checkout__10":"1","checkout__9":"0"}}"#,
            #"{"attributeName":"id","attributeValue":17,"assignments":{"checkout__0":"control","a__b__2":"x"}}"#,
            #"{"attributeName":"device","attributeValue":"[,]}\"","assignments":{"checkout__0":"control"}}"#,
            #"{"attributeName":"id","attributeValue":"bob","assignments":{"checkout__0":"2"}}"#,
            #"{"attributeName":"id","attributeValue":"cy","assignments":{"checkout":"0"}}"#,
            #"{"attributeName":"id","attributeValue":"dan","assignments":{"a__b__2":"x"}}"#,
            #"{"attributeName":"id","assignments":{}}"#, "7",
        ]
        let text =
            isArray ? "\n[" + documents.joined(separator: ",\n") + "]\n" : "\n" + documents.joined(separator: "\n")
        let names = try names()
        func at(_ line: Int) -> String { isArray ? "\(line)#\(line - 1)" : "\(line)" }
        #expect(
            try read(text) { GrowthBookProfiles(names: names) } == [
                "\(at(2)) ann 7=72", "\(at(3)) 17 7=71",
                "\(at(5)) the variation must be one of the experiment 'checkout': control (id 71), new (id 72); got '2'",
                "\(at(6)) a key of `assignments` must be an experiment's key, '__' and its bucket version, at /assignments/checkout",
                "\(at(8)) `attributeValue` must be a string; got none, at /attributeValue",
                "\(at(9)) a document must be an object",
                "left out documents of attributes other than 'id': device (1)",
                "left out assignments in experiments that are not here: a__b (2)",
            ])
    }

    @Test func `A place in an array on one line is that of the element`() {
        let places: [ImportedElement.Place] = [.init(line: 1, element: 12), .init(line: 1, element: 2), .init(line: 3)]
        #expect(places.sorted().map(\.description) == ["element 2, line 1", "element 12, line 1", "line 3"])
    }

    @Test func `Another attribute may have the user ids, and a broken array ends in an error`() throws {
        let text = #"[{"attributeName":"device","attributeValue":"d","assignments":{"checkout__0":"new"}},{"attri"#
        let names = try names()
        let found = try read(text) { GrowthBookProfiles(names: names, attribute: "device") }
        #expect(found.first == "1#1 d 7=72")
        #expect(found.count == 2 && found[1].hasPrefix("1#2 the document must be JSON"))
    }
}

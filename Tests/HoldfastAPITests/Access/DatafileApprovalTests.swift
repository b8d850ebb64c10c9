import APITestSupport
import JSON
import Testing

/// `--approvals 2` for what users get of uploaded datafiles, of concluded experiments and of imports.
@Suite struct DatafileApprovalTests {
    private let server: any TestServer

    private static let ann = "ann-secret-0123456789"
    private static let bob = "bob-secret-0123456789"

    init() throws {
        server = try startTestServer(
            tokens: "admin ann \(Self.ann)\nadmin bob \(Self.bob)\nadmin Ann \(Self.ann)-capital\n", approvals: 2)
    }

    @discardableResult
    private func ask(
        _ method: String, _ target: String, _ body: String? = nil, by token: String = ann
    ) throws -> TestResponse {
        try server.request(
            method, target, body, token: token,
            fields: target.contains("/v1/datafile") ? ["X-Optimizely-SDK-Key: default"] : [])
    }

    private func propose(_ method: String, _ target: String, _ body: String?) throws -> JSONValue {
        let response = try ask(method, target, body)
        try #require(response.status == 202, "\(target) \(body ?? ""): \(response.text)")
        return response["proposal"]
    }

    private func approve(_ proposal: JSONValue) throws {
        let id = try #require(proposal["id"].string)
        let response = try ask("POST", "/v1/proposals/\(id)/approve", by: Self.bob)
        #expect(response.status == 200, "\(response.text)")
    }

    // MARK: Datafiles

    private static let datafile = """
        {"version":"4","accountId":"1","projectId":"2","revision":"7","anonymizeIP":false,"botFiltering":false,\
        "attributes":[{"id":"a1","key":"plan"}],"audiences":[],"typedAudiences":[\
        {"id":"10","name":"gold","conditions":["or",{"type":"custom_attribute","name":"plan","match":"exact","value":"gold"}]},\
        {"id":"11","name":"vip","conditions":["or",{"segment":"vip"}]},\
        {"id":"12","name":"held","conditions":["or",{"type":"custom_attribute","name":"plan","match":"exact","value":"held"}]},\
        {"id":"13","name":"rest","conditions":["not",{"type":"custom_attribute","name":"plan","match":"exact","value":"none"}]}],\
        "events":[{"id":"e1","key":"buy","experimentIds":["100"]}],"groups":[{"id":"g","policy":"random",\
        "trafficAllocation":[{"entityId":"103","endOfRange":6000}],"experiments":[{"id":"103","key":"grouped","layerId":"103",\
        "status":"Running","forcedVariations":{},"audienceIds":[],"variations":[{"id":"6","key":"only"}],\
        "trafficAllocation":[{"entityId":"6","endOfRange":10000}]}]}],"experiments":[{"id":"100","key":"r","layerId":"100",\
        "status":"Running","forcedVariations":{},"audienceIds":["10"],"audienceConditions":["or","10"],"variations":[\
        {"id":"1","key":"old","featureEnabled":true,"variables":[{"id":"v1","value":"red"}]},\
        {"id":"2","key":"new","featureEnabled":true,"variables":[{"id":"v1","value":"blue"}]}],\
        "trafficAllocation":[{"entityId":"1","endOfRange":5000},{"entityId":"2","endOfRange":10000}]},\
        {"id":"102","key":"seg","layerId":"102","status":"Running","forcedVariations":{},"audienceIds":["11"],"variations":[\
        {"id":"5","key":"only"}],"trafficAllocation":[{"entityId":"5","endOfRange":10000}]}],"rollouts":[{"id":"200",\
        "experiments":[{"id":"201","key":"201","layerId":"200","status":"Running","forcedVariations":{},"audienceIds":["13"],\
        "variations":[{"id":"3","key":"on","featureEnabled":true,"variables":[{"id":"v1","value":"grey"}]}],\
        "trafficAllocation":[{"entityId":"3","endOfRange":10000}]}]}],"featureFlags":[{"id":"300","key":"banner",\
        "rolloutId":"200","experimentIds":["100"],"variables":[{"id":"v1","key":"color","type":"string",\
        "defaultValue":"black"}]}],"holdouts":[{"id":"400","key":"h","status":"Running","audienceIds":["12"],"variations":[\
        {"id":"7","key":"off","featureEnabled":false,"variables":[]}],\
        "trafficAllocation":[{"entityId":"7","endOfRange":1000}]}]}
        """

    private static let other = """
        {"id":"105","key":"s","layerId":"105","status":"Paused","forcedVariations":{},"audienceIds":[],"variations":[\
        {"id":"ID","key":"x","featureEnabled":true,"variables":[{"id":"v1","value":"pink"}]}],"trafficAllocation":[]}
        """

    /// Of a running experiment; what is replaced in the datafile, and the experiments that it changes.
    private static let changes: [([(String, String)], [String])] = [
        (
            [
                (
                    #""forcedVariations":{},"audienceIds":["10"]"#,
                    #""forcedVariations":{"r0":"new"},"audienceIds":["10"]"#
                )
            ], ["r"]
        ),
        ([(#""value":"red""#, #""value":"GREEN""#)], ["r"]),
        ([(#""key":"old","featureEnabled":true"#, #""key":"old","featureEnabled":false"#)], ["r"]),
        ([(#""endOfRange":5000"#, #""endOfRange":1000"#)], ["r"]),
        ([(#""value":"gold""#, #""value":"silver""#)], ["r"]),
        ([(#""defaultValue":"black""#, #""defaultValue":"white""#)], ["r"]),
        ([(#""value":"grey""#, #""value":"white""#)], ["r"]), ([(#""value":"none""#, #""value":"all""#)], ["r"]),
        ([(#""rolloutId":"200""#, #""rolloutId":"""#)], ["r"]),
        ([(#""endOfRange":6000"#, #""endOfRange":7000"#)], ["grouped"]),
        ([(#""value":"held""#, #""value":"kept""#)], ["grouped", "r", "seg"]),
        ([(#""endOfRange":1000}]}]"#, #""endOfRange":2000}]}]"#)], ["grouped", "r", "seg"]),
        // Experiments that share the id of a variation.
        ([(#"],"rollouts""#, ",\(other.replacing("ID", with: "1"))" + #"],"rollouts""#)], ["r"]),
        // What stops and does more.
        (
            [
                (
                    #""status":"Running","forcedVariations":{},"audienceIds":["10"]"#,
                    #""status":"Paused","forcedVariations":{"r0":"new"},"audienceIds":["10"]"#
                )
            ], ["r"]
        ),
        (
            [
                (
                    #""status":"Running","forcedVariations":{},"audienceIds":["10"]"#,
                    #""status":"Paused","forcedVariations":{},"audienceIds":["10"]"#
                ),
                (#""value":"blue""#, #""value":"GREEN""#),
            ], ["r"]
        ),
    ]

    private static func edited(_ replacements: [(String, String)]) throws -> String {
        try replacements.reduce(datafile) { text, replacement in
            try #require(text.contains(replacement.0), "\(replacement.0)")
            return text.replacing(replacement.0, with: replacement.1)
        }
    }

    @Test(arguments: changes.indices)
    func `Whatever users get of an uploaded running experiment waits`(change: Int) throws {
        let (replacements, experiments) = Self.changes[change]
        #expect(try ask("PUT", "/v1/datafile", Self.datafile).status == 201)
        let proposal = try propose("PUT", "/v1/datafile?moves=allow", Self.edited(replacements))
        #expect((proposal["experiments"].array ?? []).compactMap(\.string).sorted() == experiments, "\(proposal)")
        let shown = try #require(proposal["changes"].array?.first)
        #expect(shown["action"] == "datafile.put")
        // Both sides show what is replaced, and nothing that stays.
        let sides = (
            before: String(decoding: shown["before"].encoded(), as: UTF8.self),
            after: String(decoding: shown["after"].encoded(), as: UTF8.self)
        )
        #expect(sides.before != sides.after && !sides.before.contains(#""accountId""#), "\(shown)")
        try approve(proposal)
        #expect(try ask("GET", "/v1/proposals")["proposals"].array?.map { $0["status"] } == ["approved"])
    }

    @Test func `A proposal of a datafile shows the members that differ, by element, and no more than fits`() throws {
        #expect(try ask("PUT", "/v1/datafile", Self.datafile).status == 201)
        let whitelist = Self.changes[0].0
        let shown = try propose("PUT", "/v1/datafile?moves=allow", Self.edited(whitelist))["changes"].array?.first
        #expect(shown?["before"] == ["experiments": ["r": ["forcedVariations": [:]]]])
        #expect(shown?["after"] == ["experiments": ["r": ["forcedVariations": ["r0": "new"]]]])
        let many = (0..<300).map { #""user-\#($0)":"new""# }.joined(separator: ",")
        let experiments = (0..<150).map {
            Self.other.replacing("105", with: "9\($0)").replacing(#""s""#, with: #""s\#($0)""#).replacing(
                "ID", with: "8\($0)")
        }
        let large = try propose(
            "PUT", "/v1/datafile?moves=allow",
            Self.edited([
                (whitelist[0].0, whitelist[0].1.replacing(#""r0":"new""#, with: many)),
                (#"],"rollouts""#, "," + experiments.joined(separator: ",") + #"],"rollouts""#),
            ]))["changes"].array?.first
        #expect(large?["after"]["experiments"]["r"]["forcedVariations"].string?.hasSuffix(" bytes)") == true)
        #expect(large?["after"]["experiments"]["…"] == 51)
        #expect(large?["after"]["experiments"].object?.count == 101)
    }

    @Test(
        arguments: [
            [
                (
                    #""status":"Running","forcedVariations":{},"audienceIds":["10"]"#,
                    #""status":"Paused","forcedVariations":{},"audienceIds":["10"]"#
                )
            ],
            [(#""revision":"7""#, #""revision":"8""#)],
            [(#"{"id":"e1""#, #"{"id":"e2","key":"view","experimentIds":[]},{"id":"e1""#)],
            [(#"],"rollouts""#, ",\(other.replacing("ID", with: "9"))" + #"],"rollouts""#)],
        ])
    func `A datafile that only stops, or leaves running experiments alone, needs nobody else`(
        replacements: [(String, String)]
    ) throws {
        #expect(try ask("PUT", "/v1/datafile", Self.datafile).status == 201)
        let response = try ask("PUT", "/v1/datafile", Self.edited(replacements))
        #expect(response.status == 200, "\(response.text)")
    }

    @Test func `To define the segment that an uploaded audience names waits, as changing it does`() throws {
        #expect(try ask("PUT", "/v1/datafile", Self.datafile).status == 201)
        #expect(try ask("PUT", "/v1/attributes/plan", #"{"type":"string"}"#).status == 201)
        let gold = #"{"conditions":{"type":"custom_attribute","name":"plan","value":"gold"}}"#
        #expect(try ask("PUT", "/v1/segments/unused", gold).status == 201)
        let proposal = try propose("PUT", "/v1/segments/vip", gold)
        #expect(proposal["experiments"] == ["seg"])
        #expect(try ask("GET", "/v1/segments/vip").status == 404)
        try approve(proposal)
        #expect(try ask("GET", "/v1/segments/vip").status == 200)
    }

    // MARK: Concluded experiments

    @Test func `What everybody gets of a concluded experiment waits until it is archived`() throws {
        let path = "/v1/experiments/ce"
        #expect(try ask("PUT", path, #"{"variations":["a","b"]}"#).status == 201)
        try approve(try propose("POST", "\(path)/conclude", #"{"winner":"a"}"#))
        #expect(try ask("GET", path)["status"] == "concluded")
        for (method, target, body) in [
            ("POST", "\(path)/reopen", ""), ("PUT", path, #"{"status":"running"}"#),
            ("PUT", path, #"{"status":"paused"}"#),
            ("POST", "\(path)/conclude", #"{"winner":"b"}"#), ("POST", "\(path)/conclude", #"{"winner":null}"#),
            ("PUT", path, #"{"audience":{"name":"plan","match":"exact","value":"x"}}"#),
            ("PUT", "/v1/definitions", #"{"experiments":[{"key":"ce","status":"running"}]}"#),
            ("PUT", path, #"{"status":"archived"}"#), ("DELETE", path, nil),
        ] as [(String, String, String?)] {
            let proposal = try propose(method, target, body)
            #expect(proposal["experiments"] == ["ce"])
        }
        #expect(try ask("GET", path)["conclusion"]["winner"] == "a")
        // What nobody gets anything of.
        #expect(try ask("PUT", path, #"{"description":"It won."}"#).status == 200)
        #expect(try ask("PUT", "/v1/experiments/another", #"{"variations":["a","b"]}"#).status == 201)
        try approve(try propose("POST", "\(path)/conclude", #"{"winner":"b"}"#))
        #expect(try ask("GET", path)["conclusion"]["winner"] == "b")
        try approve(try propose("POST", "\(path)/reopen", nil))
        #expect(try ask("GET", path)["status"] == "running")
        try approve(try propose("DELETE", path, nil))
        let over = try ask("PUT", path, #"{"status":"archived","description":"Over."}"#)
        #expect(over.status == 200, "\(over.text)")
    }

    // MARK: Imports and people

    @Test func `An experiment that has run takes no import, and a draft does`() throws {
        #expect(try ask("PUT", "/v1/experiments/run", #"{"variations":["a","b"]}"#).status == 201)
        #expect(try ask("PUT", "/v1/experiments/idle", #"{"variations":["a","b"],"status":"draft"}"#).status == 201)
        let body = #"""
            {"started_at":"2026-01-01T00:00:00Z","shares":{"a":1,"b":1},
             "exposures":[{"user_id":"eve","variation_key":"a","timestamp":"2026-01-02T00:00:00Z"}]}
            """#
        let refused = try ask("POST", "/v1/experiments/run/import", body)
        #expect(
            refused.status == 409 && refused["detail"].string?.contains("must not have run") == true, "\(refused.text)")
        #expect(try ask("PUT", "/v1/experiments/run", #"{"status":"paused"}"#).status == 200)
        #expect(try ask("POST", "/v1/experiments/run/import", body).status == 409)
        let taken = try ask("POST", "/v1/experiments/idle/import", body)
        #expect(taken.status == 200, "\(taken.text)")
    }

    @Test func `Another default project waits while the former one has running experiments`() throws {
        #expect(try ask("PUT", "/v1/experiments/ce", #"{"variations":["a","b"],"status":"draft"}"#).status == 201)
        let (first, other) = ("/v1/projects/default", "/v1/projects/other")
        #expect(try ask("PUT", other, #"{"default":true}"#).status == 201)
        #expect(try ask("PUT", first, #"{"default":true}"#).status == 200)
        #expect(try ask("PUT", "/v1/experiments/ce", #"{"status":"running"}"#).status == 200)
        let proposal = try propose("PUT", other, #"{"default":true}"#)
        #expect(proposal["experiments"] == ["ce"] && proposal["sdk_key"] == "default")
        #expect(try ask("GET", other)["default"] == false)
        #expect(try ask("PUT", other, #"{"default":true,"assignment_ttl":"9d"}"#).status == 409)
        try approve(proposal)
        #expect(try ask("GET", other)["default"] == true)
        #expect(
            try ask("GET", "/v1/proposals?status=approved", by: Self.bob)["proposals"] == [], "they are the other's")
    }

    @Test func `A name in another case is the same person`() throws {
        #expect(try ask("PUT", "/v1/experiments/ce", #"{"variations":["a","b"]}"#).status == 201)
        let proposal = try propose("PUT", "/v1/experiments/ce", #"{"traffic":50}"#)
        let id = try #require(proposal["id"].string)
        let refused = try ask("POST", "/v1/proposals/\(id)/approve", by: Self.ann + "-capital")
        #expect(
            refused.status == 403 && refused["detail"].string?.contains("'Ann' has made it") == true, "\(refused.text)")
        try approve(proposal)
        #expect(try ask("GET", "/v1/proposals/\(id)")["author"] == "ann")
    }
}

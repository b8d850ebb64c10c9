import APITestSupport
import JSON
import TestSupport
import Testing

/// `/v1/experiments/{key}/history`, and that of flags, metrics and holdouts.
@Suite struct HistoryTests {
    private let server: any TestServer

    init() throws {
        server = try startTestServer()
    }

    @discardableResult
    private func ask(
        _ method: String, _ target: String, _ body: String? = nil, fields: [String] = [], expecting status: Int? = 200
    ) throws -> TestResponse {
        let response = try server.request(method, target, body, fields: fields)
        if let status { #expect(response.status == status, "\(method) \(target): \(response.text)") }
        return response
    }

    /// The entries, newest first, as `ACTION REVISION MEMBER…`.
    private func history(_ path: String, _ query: String = "") throws -> [String] {
        let response = try ask("GET", "/v1/\(path)/history\(query)")
        return (response["history"].array ?? []).map { entry in
            let members = (entry["changes"].array ?? []).compactMap { $0["member"].string }
            return ([entry["action"].string ?? "", entry["revision"].string ?? ""] + members).joined(separator: " ")
        }
    }

    /// - Parameter index: of the entry, the newest first.
    private func version(_ path: String, _ index: Int) throws -> Int64 {
        let entries = try #require(try ask("GET", "/v1/\(path)/history")["history"].array)
        return try #require(entries[index]["version"].integer)
    }

    @Test func `An experiment has an entry for each version that changed it`() throws {
        try ask("PUT", "/v1/experiments/checkout", #"{"variations":["a","b"],"traffic":50}"#, expecting: 201)
        try ask("PUT", "/v1/experiments/other", #"{"variations":["a","b"]}"#, expecting: 201)
        try ask("PUT", "/v1/experiments/checkout", #"{"traffic":80,"tags":["x"]}"#)
        try ask("PUT", "/v1/experiments/other", #"{"traffic":5}"#)
        try ask("DELETE", "/v1/experiments/checkout", expecting: 204)
        #expect(
            try history("experiments/checkout") == ["changed 5 status", "changed 3 traffic tags", "created 1"])
        #expect(try history("experiments/other") == ["changed 4 traffic", "created 2"])
        let response = try ask("GET", "/v1/experiments/checkout/history?limit=1")
        let entry = try #require(response["history"].array?.first)
        #expect(entry["changes"] == [["member": "status", "before": "running", "after": "archived"]])
        #expect(entry["definition"]["traffic"] == 80 && entry["author"] == "anonymous" && entry["restorable"] == true)
        #expect(response["next"] == 5)
        #expect(try history("experiments/checkout", "?after=5&limit=1") == ["changed 3 traffic tags"])
        #expect(try history("experiments/checkout", "?after=3&limit=1") == ["created 1"])
        #expect(try history("experiments/checkout", "?after=1") == [])
        // An experiment is a flag of its key.
        #expect(try history("flags/checkout") == ["created 1"])
    }

    @Test func `Flags, metrics and holdouts have one, also after they are removed`() throws {
        let flag = #"{"type":"boolean","rules":[{"key":"rule","experiment":{"weights":{"off":1,"on":1}}}]}"#
        try ask("PUT", "/v1/flags/banner", flag, expecting: 201)
        try ask("PUT", "/v1/metrics/orders", #"{"kind":"conversion","goal":"order"}"#, expecting: 201)
        try ask("PUT", "/v1/holdouts/all", #"{"share":5}"#, expecting: 201)
        try ask("PUT", "/v1/flags/banner", #"{"rules":[{"key":"rule","experiment":{"weights":{"off":1,"on":3}}}]}"#)
        try ask("PUT", "/v1/metrics/orders", #"{"goal":"purchase"}"#)
        try ask("PUT", "/v1/holdouts/all", #"{"share":7}"#)
        for path in ["flags/banner", "metrics/orders", "holdouts/all"] {
            try ask("DELETE", "/v1/\(path)", expecting: 204)
        }
        #expect(try history("flags/banner") == ["removed 7", "changed 4 rules", "created 1"])
        #expect(try history("metrics/orders") == ["removed 8", "changed 5 goal", "created 2"])
        #expect(try history("holdouts/all") == ["removed 9", "changed 6 share", "created 3"])
        let removed = try ask("GET", "/v1/flags/banner/history")["history"].array?.first
        #expect(removed?["definition"] == .null && removed?["restorable"] == false)
        try ask("POST", "/v1/flags/banner/history/\(version("flags/banner", 1))/restore")
        #expect(try ask("GET", "/v1/flags/banner")["enabled"] == true)
        #expect(try history("flags/banner").first == "created 10")
        try ask("POST", "/v1/metrics/orders/history/2/restore")
        #expect(try ask("GET", "/v1/metrics/orders")["goal"] == "order")
        try ask("POST", "/v1/holdouts/all/history/3/restore")
        #expect(try ask("GET", "/v1/holdouts/all")["share"] == 5)
    }

    @Test func `Uploads are versions, too, and only they bring again what they have brought`() throws {
        let datafile = { (experiments: String) in
            #"{"version":"4","accountId":"1","projectId":"1","revision":"7","sdkKey":"default","attributes":[],"audiences":[],"groups":[],"events":[],"rollouts":[],"featureFlags":[],"experiments":[\#(experiments)]}"#
        }
        let legacy =
            #"{"id":"9001","key":"legacy","layerId":"1","status":"Running","audienceIds":["5"],"forcedVariations":{},"variations":[{"id":"1","key":"a"},{"id":"2","key":"b"}],"trafficAllocation":[{"entityId":"1","endOfRange":5000},{"entityId":"2","endOfRange":10000}]}"#
        let withAudience = datafile(legacy).replacing(
            #""audiences":[]"#,
            with:
                #""audiences":[{"id":"5","name":"n","conditions":"[\"or\",{\"type\":\"custom_attribute\",\"name\":\"p\",\"value\":\"q\"}]"}]"#
        )
        try ask("PUT", "/v1/datafile", withAudience, expecting: 201)
        try ask("PUT", "/v1/experiments/mine", #"{"variations":["a","b"],"traffic":30}"#, expecting: 201)
        try ask("PUT", "/v1/experiments/mine", #"{"traffic":60}"#)
        try ask("PUT", "/v1/datafile?moves=allow", datafile(""))
        #expect(try history("experiments/mine") == ["removed 7", "changed 9 traffic", "created 8"])
        let entries = try ask("GET", "/v1/experiments/legacy/history")["history"].array ?? []
        #expect(entries.map { $0["action"] } == ["removed", "created"])
        #expect(entries.map { $0["restorable"] } == [false, false])
        let refused = try ask("POST", "/v1/experiments/legacy/history/1/restore", expecting: 409)
        #expect(refused["detail"].string?.contains("PUT /v1/datafile") == true)
        // With its id, so that its users are there again.
        let id = try #require(try ask("GET", "/v1/experiments/mine/history")["history"].array?[1]["definition"]["id"])
        try ask("POST", "/v1/experiments/mine/history/3/restore")
        let again = try ask("GET", "/v1/experiments/mine")
        #expect(again["traffic"] == 60 && again["id"] == id)
    }

    @Test func `A version is put back after a preview, with the effects and the conditions of a PUT`() throws {
        try ask("PUT", "/v1/experiments/checkout", #"{"variations":["a","b"],"traffic":100}"#, expecting: 201)
        try ask("PUT", "/v1/experiments/checkout", #"{"variations":["a","b","c"],"name":"New"}"#)
        for user in 0..<40 {
            try ask("POST", "/v1/assign", #"{"user_id":"u\#(user)","experiment":"checkout"}"#)
        }
        let target = "/v1/experiments/checkout/history/1"
        let preview = try ask("POST", "\(target)/preview")
        let members = preview["changes"].array?.first?["members"].array?.compactMap { $0["member"].string } ?? []
        #expect(Set(members) == ["variations", "name"])
        #expect(preview["moves"]["users"].integer ?? 0 > 0)
        #expect(try history("experiments/checkout").count == 2)
        let tag = try #require(try ask("GET", "/v1/experiments/checkout").field("etag"))
        #expect(preview["basis"].string == tag)

        try ask("POST", "\(target)/restore", fields: [#"If-Match: "other""#], expecting: 412)
        try ask("POST", "\(target)/restore", fields: ["If-Match: \(tag)"], expecting: 409)
        let restored = try ask("POST", "\(target)/restore?moves=allow", fields: ["If-Match: \(tag)"])
        #expect(restored["revision"] == "3" && restored["changes"].array?.count == 1)
        let shown = try ask("GET", "/v1/experiments/checkout")
        #expect(shown["status"] == "running" && shown["variations"].array?.count == 2)
        #expect(try history("experiments/checkout").first?.hasPrefix("changed 3 ") == true)
        let entry = try ask("GET", "/v1/audit?limit=1")["entries"].array?.first
        #expect(entry?["action"] == "experiment.put" && entry?["target"] == "checkout")
        let again = try ask("POST", "\(target)/restore")
        #expect(again["changes"] == [] && again["revision"] == "3")
        #expect(try ask("GET", "/v1/audit?limit=1")["entries"].array?.first?["id"] == entry?["id"])
    }

    @Test func `What is wrong is refused as elsewhere`() throws {
        try ask("PUT", "/v1/experiments/checkout", #"{"variations":["a","b"]}"#, expecting: 201)
        try ask("PUT", "/v1/experiments/second", #"{"variations":["a","b"]}"#, expecting: 201)
        let unknown = try ask("GET", "/v1/experiments/checkot/history", expecting: 404)
        #expect(unknown["detail"].string?.contains("'checkout'") == true)
        let restores = "/v1/experiments/checkout/history"
        #expect(
            try ask("POST", "\(restores)/9/restore", expecting: 404)["detail"].string?.contains("2 are kept") == true)
        try ask("POST", "/v1/experiments/second/history/1/restore", expecting: 404)
        try ask("POST", "/v1/flags/none/history/1/restore", expecting: 404)
        for (target, body) in [
            ("0/restore", nil), ("newest/restore", nil), ("1/restore?moves=all", nil), ("1/restore?dry_run=true", nil),
            ("1/restore", "{}"), ("1/preview", "x"), ("1/preview?moves=allow", nil),
        ] as [(String, String?)] {
            try ask("POST", "\(restores)/\(target)", body, expecting: 400)
        }
        for query in ["limit=0", "limit=101", "limit=x", "after=0", "after=x", "before=3"] {
            try ask("GET", "\(restores)?\(query)", expecting: 400)
        }
        try ask("GET", "/v1/experiments/a%00b/history", expecting: nil)
    }

    @Test func `Of a definition that is older than the kept versions the oldest of these is shown`() throws {
        try ask("PUT", "/v1/experiments/checkout", #"{"variations":["a","b"],"traffic":1}"#, expecting: 201)
        try ask("PUT", "/v1/experiments/busy", #"{"variations":["a","b"]}"#, expecting: 201)
        for number in 1...99 { try ask("PUT", "/v1/experiments/busy", #"{"name":"\#(number)"}"#) }
        #expect(try history("experiments/checkout") == ["oldest_kept 2"])
        let gone = try ask("POST", "/v1/experiments/checkout/history/1/restore", expecting: 404)
        #expect(gone["detail"].string?.contains("100 are kept, the oldest is 2") == true)
        #expect(try ask("GET", "/v1/experiments/busy/history")["history"].array?.count == 20)
    }

    @Test func `To put back what changes a running experiment waits for a second person`() throws {
        let (ann, bob) = ("ann-secret-0123456789", "bob-secret-0123456789")
        let server = try startTestServer(
            tokens: "admin ann \(ann)\nadmin bob \(bob)\nread eve eve-secret-0123456789\n", approvals: 2)
        func ask(_ method: String, _ target: String, _ body: String? = nil, by token: String) throws -> TestResponse {
            try server.request(method, target, body, token: token)
        }
        func approve(_ response: TestResponse) throws {
            #expect(response.status == 202, "\(response.text)")
            let id = try #require(response["proposal"]["id"].string)
            #expect(try ask("POST", "/v1/proposals/\(id)/approve", by: bob).status == 200)
        }
        let target = "/v1/experiments/checkout"
        #expect(try ask("PUT", target, #"{"variations":["a","b"],"traffic":50}"#, by: ann).status == 201)
        try approve(try ask("PUT", target, #"{"traffic":80}"#, by: ann))
        #expect(try ask("POST", "\(target)/history/1/preview", by: ann)["needs_approval"] == ["checkout"])
        try approve(try ask("POST", "\(target)/history/1/restore", by: ann))
        #expect(try ask("GET", target, by: ann)["traffic"] == 50)
        let entry = try ask("GET", "\(target)/history", by: "eve-secret-0123456789")["history"].array?.first
        #expect(entry?["author"] == "ann" && entry?["version"] == 3)
        #expect(try ask("POST", "\(target)/history/1/restore", by: "eve-secret-0123456789").status == 403)
    }

    @Test func `After a restart, and by another process, it is the same`() throws {
        let directory = try TemporaryDirectory(inMemory: true)
        let one = try startTestServer(in: directory)
        #expect(try one.request("PUT", "/v1/experiments/e", #"{"variations":["a","b"],"traffic":5}"#).status == 201)
        #expect(try one.request("PUT", "/v1/experiments/e", #"{"traffic":9}"#).status == 200)
        let before = try one.request("GET", "/v1/experiments/e/history").text
        let other = try startTestServer(in: directory)
        #expect(try other.request("GET", "/v1/experiments/e/history").text == before)
        one.stop()
        #expect(try other.request("POST", "/v1/experiments/e/history/1/restore").status == 200)
        #expect(try other.request("GET", "/v1/experiments/e")["traffic"] == 5)
    }
}

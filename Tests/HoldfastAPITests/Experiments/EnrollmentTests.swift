import APITestSupport
import JSON
import Testing

/// Closed enrollment, and groups of mutually exclusive experiments.
@Suite struct EnrollmentTests {
    private let server: any TestServer
    private static let sdk = ["X-Optimizely-SDK-Key: default", "Content-Type: application/json"]

    init() throws {
        server = try startTestServer()
    }

    @discardableResult
    private func put(_ key: String, _ body: String) throws -> TestResponse {
        try server.request("PUT", "/v1/experiments/\(key)", body)
    }

    private func assign(_ user: String, _ experiment: String = "checkout") throws -> JSONValue {
        try server.request("POST", "/v1/assign", #"{"user_id":"\#(user)","experiment":"\#(experiment)"}"#).json
    }

    /// The variation by each way of asking, the one that would enroll with the first last.
    private func variations(_ user: String) throws -> [JSONValue] {
        let evaluated = try server.request("POST", "/v1/evaluations", #"{"user_id":"\#(user)"}"#)
        let decided = try server.request(
            "POST", "/v1/decide?keys=checkout", #"{"userId":"\#(user)"}"#, fields: Self.sdk)["variationKey"]
        return [
            evaluated["evaluations"].array?.first?["variation_key"] ?? .null, decided == "" ? .null : decided,
            try assign(user)["variation_key"],
        ]
    }

    // MARK: Enrollment

    @Test func `Closed enrollment keeps who takes part and enrolls nobody, whatever the way of asking`() throws {
        let open = try put("checkout", #"{"variations":[{"key":"a","weight":3},{"key":"b","weight":1}],"traffic":80}"#)
        #expect(open["enrollment"] == "open" && open["group"].isNull)
        let users = (0..<40).map { "user\($0)" }
        let before = try users.map { try assign($0)["variation_key"] }
        let closed = try put("checkout", #"{"enrollment":"closed"}"#)
        #expect(closed["enrollment"] == "closed" && closed["traffic_allocation"] == [])
        #expect(closed["variations"] == open["variations"] && closed["traffic"] == 80)
        for (user, variation) in zip(users, before) {
            #expect(try variations(user) == [variation, variation, variation])
            #expect(try variations("new-\(user)") == [.null, .null, .null])
            #expect(try server.request("GET", "/v1/profiles/new-\(user)").status == 404)
        }
        #expect(try assign("new-user0")["reasons"].array?.contains { $0.string?.contains("is closed") == true } == true)
        let enrolled = try #require(zip(users, before).first { !$0.1.isNull }?.0)
        let exposed = try server.request(
            "POST", "/v1/exposures", #"{"user_id":"\#(enrolled)","experiment":"checkout"}"#)
        #expect(exposed.status < 300, "\(exposed.text)")
        // Weights and traffic that change meanwhile apply when it opens again.
        let changed = try put("checkout", #"{"traffic":100}"#)
        #expect(changed["traffic_allocation"] == [] && changed["traffic"] == 100)
        let reopened = try put("checkout", #"{"enrollment":"open"}"#)
        #expect(reopened["variations"].array?.map { $0["share"] } == [75, 25])
        #expect(try variations("new-user0").allSatisfy { $0.string != nil })
        for (user, variation) in zip(users, before) where !variation.isNull {
            #expect(try assign(user)["variation_key"] == variation)
        }
    }

    // MARK: Groups

    @Test func `A user is enrolled in at most one experiment of a group, and each gets its traffic`() throws {
        for (key, traffic) in [("checkout", 50), ("search", 30)] {
            let response = try put(key, #"{"variations":["a","b"],"group":"page","traffic":\#(traffic)}"#)
            #expect(response.status == 201 && response["group"] == "page", "\(response.text)")
            #expect(response["traffic"].double == Double(traffic))
            #expect(
                response["variations"].array?.map { $0["share"].double } == [Double(traffic) / 2, Double(traffic) / 2])
        }
        var counts = [0, 0]
        for number in 0..<300 {
            let parts = try ["checkout", "search"].map {
                try assign("user\(number)", $0)["variation_key"].string != nil
            }
            #expect(parts != [true, true])
            for (index, takesPart) in parts.enumerated() where takesPart { counts[index] += 1 }
        }
        #expect((115...185).contains(counts[0]) && (60...120).contains(counts[1]), "\(counts)")
    }

    @Test func `An experiment that enters or leaves a group keeps traffic and users`() throws {
        let alone = try put("checkout", #"{"variations":[{"key":"a","weight":3},{"key":"b","weight":1}],"traffic":40}"#)
        let users = (0..<60).map { "user\($0)" }
        let before = try users.map { try assign($0)["variation_key"] }
        let grouped = try put("checkout", #"{"group":"page"}"#)
        #expect(grouped["traffic"] == 40 && grouped["variations"] == alone["variations"], "\(grouped.text)")
        let other = try put("checkout", #"{"group":"other"}"#)
        #expect(other["group"] == "other" && other["traffic"] == 40)
        let datafile = try server.request("GET", "/v1/datafile", fields: Self.sdk)
        #expect(datafile["groups"].array?.count == 1)
        for (user, variation) in zip(users, before) where !variation.isNull {
            #expect(try assign(user)["variation_key"] == variation)
        }
        let left = try put("checkout", #"{"group":null}"#)
        #expect(left["group"].isNull && left["variations"] == alone["variations"] && left["traffic"] == 40)
        #expect(try server.request("GET", "/v1/datafile", fields: Self.sdk)["groups"] == [])
    }

    @Test func `Traffic that grows leaves the others of the group their users`() throws {
        try put("checkout", #"{"variations":["a"],"group":"page","traffic":20}"#)
        try put("search", #"{"variations":["a"],"group":"page","traffic":30}"#)
        func enrolled(_ key: String) throws -> Set<Int> {
            var users: Set<Int> = []
            for user in 0..<200 {
                let response = try server.request("GET", "/v1/assign?user_id=user\(user)&experiment=\(key)")
                if response["variation_key"].string != nil { users.insert(user) }
            }
            return users
        }
        let before = (try enrolled("checkout"), try enrolled("search"))
        try put("checkout", #"{"traffic":70}"#)
        #expect(try enrolled("search") == before.1)
        #expect(try enrolled("checkout").isSuperset(of: before.0))
    }
}

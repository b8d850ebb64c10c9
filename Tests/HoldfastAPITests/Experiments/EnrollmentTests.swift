import APITestSupport
import JSON
import Testing

/// Closed enrollment.
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
}

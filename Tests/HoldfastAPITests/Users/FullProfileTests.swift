import APITestSupport
import JSON
import Testing

/// A profile at the limit of assignments: the experiments that cannot be stored enroll nobody, and all else answers.
@Suite struct FullProfileTests {
    private let server: any TestServer
    private static let sdk = ["X-Optimizely-SDK-Key: default", "Content-Type: application/json"]

    init() throws {
        server = try startTestServer()
        for key in ["first", "second"] {
            let definition = #"{"id":"\#(key)","variations":["a","b"]}"#
            #expect(try server.request("PUT", "/v1/experiments/\(key)", definition).status == 201)
        }
        try save("full", 1_000)
        try save("nearly", 999)
    }

    private func save(_ user: String, _ count: Int) throws {
        let entries = (0..<count).map { #""e\#($0)":{"variation_id":"v"}"# }.joined(separator: ",")
        let body = #"{"user_id":"\#(user)","experiment_bucket_map":{\#(entries)}}"#
        #expect(try server.request("PUT", "/v1/profiles/\(user)", body).status == 201)
    }

    private func count(_ user: String) throws -> Int? {
        try server.request("GET", "/v1/profiles/\(user)")["experiment_bucket_map"].object?.count
    }

    @Test func `Every bulk evaluation answers, with a reason where the profile is full`() throws {
        let evaluated = try server.request(
            "POST", "/v1/evaluations", #"{"user_id":"full","include_reasons":true}"#)
        #expect(evaluated.status == 200)
        let list = try #require(evaluated["evaluations"].array)
        for evaluation in list where ["first", "second"].contains(evaluation["flag_key"].string) {
            #expect(evaluation["variation_key"].isNull && evaluation["source"] == "none")
            let reasons = evaluation["reasons"].array ?? []
            #expect(reasons.contains { $0.string?.contains("is full") == true })
        }
        let decided = try server.request("POST", "/v1/decide", #"{"userId":"full"}"#, fields: Self.sdk)
        #expect(decided.status == 200 && decided.json.array?.count == list.count)
        let activated = try server.request(
            "POST", "/v1/activate?type=experiment", #"{"userId":"full"}"#, fields: Self.sdk)
        #expect(activated.status == 200)
        let bulk = try server.request(
            "POST", "/ofrep/v1/evaluate/flags", #"{"context":{"targetingKey":"full"}}"#)
        #expect(bulk.status == 200)
        let bucketeer = try server.request("POST", "/get_evaluations", #"{"tag":"","user":{"id":"full"}}"#)
        #expect(bucketeer.status == 200)
        #expect(try count("full") == 1_000)
    }

    @Test func `The experiments that there is room for enroll, and each answer is what is stored`() throws {
        let evaluated = try server.request("POST", "/v1/evaluations", #"{"user_id":"nearly"}"#)
        let enrolled = try #require(evaluated["evaluations"].array).filter { !$0["variation_key"].isNull }
        #expect(enrolled.map { $0["flag_key"] } == ["first"])
        #expect(try count("nearly") == 1_000)
        let again = try server.request("POST", "/v1/evaluations", #"{"user_id":"nearly"}"#)
        #expect(
            try #require(again["evaluations"].array).map { $0["variation_key"] }
                == evaluated["evaluations"].array?.map { $0["variation_key"] })
    }

    @Test func `One assignment, its preview and its explanation say that the profile is full`() throws {
        let ask = #"{"user_id":"full","experiment":"first"}"#
        for assigned in [
            try server.request("POST", "/v1/assign", ask),
            try server.request("GET", "/v1/assign?user_id=full&experiment=first"),
        ] {
            #expect(assigned.status == 200 && assigned["variation_key"].isNull && assigned["source"] == "none")
            #expect(assigned["reasons"].array?.contains { $0.string?.contains("is full") == true } == true)
        }
        let explained = try server.request("GET", "/v1/profiles/full/experiments/first/explain")
        #expect(explained.status == 200)
        #expect(explained["steps"].array?.last?["step"] == "profile", "\(explained.text)")
    }

    @Test func `Archiving an experiment makes room, and its assignment stays`() throws {
        let ask = #"{"user_id":"nearly","experiment":"first"}"#
        #expect(try server.request("POST", "/v1/assign", ask)["variation_key"].string != nil)
        let other = #"{"user_id":"nearly","experiment":"second"}"#
        #expect(try server.request("POST", "/v1/assign", other)["variation_key"].isNull)
        #expect(try server.request("PUT", "/v1/experiments/first", #"{"status":"Archived"}"#).status == 200)
        #expect(try server.request("POST", "/v1/assign", other)["variation_key"].string != nil)
        #expect(try count("nearly") == 1_001)
    }
}

import APITestSupport
import JSON
import Testing

/// Users whom one server erases or merges, as another server on the same database sees them.
@Suite struct RemovedUserTests {
    private let one: any TestServer
    private let other: any TestServer
    private static let sdk = ["X-Optimizely-SDK-Key: default", "Content-Type: application/json"]

    init() throws {
        let directory = try TemporaryDirectory(inMemory: true)
        one = try startTestServer(in: directory)
        #expect(try one.request("PUT", "/v1/experiments/checkout", #"{"id":"7","variations":["a","b"]}"#).status == 201)
        other = try startTestServer(in: directory)
    }

    /// Decides for a user on the other server, which records the exposure.
    @discardableResult
    private func decide(_ user: String, options: String = "") throws -> JSONValue {
        try other.request(
            "POST", "/v1/decide?keys=checkout", #"{"userId":"\#(user)"\#(options)}"#, fields: Self.sdk)["variationKey"]
    }

    private func exposures(_ user: String) throws -> Int? {
        try one.request("GET", "/v1/profiles/\(user)/exposures")["exposures"].array?.count
    }

    private func awaitExposures(_ user: String, _ count: Int) throws {
        #expect(try eventually { try exposures(user) == count }, "\(user)")
    }

    @Test func `The first exposure after a merge or an erasure by another server is recorded`() throws {
        for user in ["anonymous", "ben"] {
            try decide(user)
            try awaitExposures(user, 1)
        }
        #expect(try one.request("POST", "/v1/profiles/ada/merge", #"{"from":"anonymous"}"#).status == 200)
        #expect(try one.request("DELETE", "/v1/profiles/ben").status == 200)
        for user in ["anonymous", "ben"] {
            try decide(user)
            try awaitExposures(user, 1)
        }
    }

    @Test func `Exposures that enroll nobody are recorded again after an erasure by another server`() throws {
        let ignoring = #","decideOptions":["IGNORE_USER_PROFILE_SERVICE"]"#
        try decide("ben", options: ignoring)
        try awaitExposures("ben", 1)
        #expect(try one.request("DELETE", "/v1/profiles/ben").status == 200)
        // The notice arrives within a moment.
        #expect(
            try eventually {
                try decide("ben", options: ignoring)
                return try exposures("ben") == 1
            })
    }

    @Test func `A forced variation that another server erased or removed is not applied once more`() throws {
        func force(_ user: String, _ variation: String?) throws {
            let key = variation.map { #","variationKey":"\#($0)""# } ?? ""
            let body = #"{"userId":"\#(user)","experimentKey":"checkout"\#(key)}"#
            #expect(try one.request("POST", "/v1/override", body, fields: Self.sdk).status == 200)
        }
        for number in 0..<10 {
            let user = "user\(number)"
            let own = try decide(user)
            let forced = own == "a" ? "b" : "a"
            try force(user, forced)
            #expect(try eventually { try decide(user).string == forced })
            if number % 2 == 0 {
                #expect(try one.request("DELETE", "/v1/profiles/\(user)").status == 200)
                let report = #"{"user_id":"\#(user)","experiment":"checkout"}"#
                #expect(try other.request("POST", "/v1/exposures", report).status == 422)
            } else {
                try force(user, nil)
            }
            #expect(try decide(user) == own)
        }
    }
}

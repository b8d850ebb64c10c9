import APITestSupport
import Foundation
import JSON
import Testing

/// `/v1/overview`: experiments with users, verdicts and alarms, filtered, sorted and paged.
@Suite struct OverviewTests {
    private let server: any TestServer

    init() throws {
        server = try startTestServer()
        #expect(
            try server.request("PUT", "/v1/metrics/orders", #"{"kind":"conversion","goal":"purchase"}"#).status == 201)
        for (key, body) in [
            (
                "checkout",
                #"{"variations":["old","new"],"owner":"ann","tags":["web"],"metrics":{"primary":["orders"]}}"#
            ),
            ("search", #"{"variations":["a","b"],"owner":"bob","traffic":20,"status":"paused"}"#),
            ("banner", #"{"variations":["off","on"],"owner":"Ann","tags":["web"],"status":"draft"}"#),
            ("Zebra", #"{"variations":["off","on"],"hypothesis":"stripes sell"}"#),
        ] {
            #expect(try server.request("PUT", "/v1/experiments/\(key)", body).status == 201)
        }
    }

    private func keys(_ query: String) throws -> [String?] {
        let response = try server.request("GET", "/v1/overview\(query)")
        #expect(response.status == 200)
        return response["experiments"].array?.map(\.["key"].string) ?? []
    }

    /// Reports exposures and purchases of users with consecutive numbers.
    private func report(_ users: Range<Int>, of experiment: String, _ variation: String, buying: Int) throws {
        let exposures = users.map {
            #"{"user_id":"u\#($0)","experiment":"\#(experiment)","variation_key":"\#(variation)"}"#
        }
        let events = users.prefix(buying).map { #"{"user_id":"u\#($0)","goal":"purchase"}"# }
        for (path, list) in [("/v1/exposures", exposures), ("/v1/events", events)] where !list.isEmpty {
            #expect(try server.request("POST", path, "[\(list.joined(separator: ","))]").status == 200)
        }
    }

    @Test func `The newest experiment comes first, and each order has its opposite`() throws {
        #expect(try keys("") == ["Zebra", "banner", "search", "checkout"])
        #expect(try keys("?order=asc") == ["checkout", "search", "banner", "Zebra"])
        #expect(try keys("?sort=key&order=asc") == ["banner", "checkout", "search", "Zebra"])
        #expect(try keys("?sort=traffic&order=asc").first == "search")
        #expect(try keys("?sort=status&order=asc") == ["banner", "search", "checkout", "Zebra"])
        #expect(try keys("?sort=owner&order=asc") == ["Zebra", "checkout", "banner", "search"])
        // Only what happens while an experiment runs counts.
        for status in ["running", "paused"] {
            let body = #"{"status":"\#(status)"}"#
            #expect(try server.request("PUT", "/v1/experiments/search", body).status == 200)
            try report(0..<3, of: "search", "a", buying: 0)
        }
        try report(3..<4, of: "checkout", "new", buying: 0)
        #expect(try keys("?sort=users") == ["search", "checkout", "Zebra", "banner"])
        #expect(try server.request("PUT", "/v1/experiments/search", #"{"name":"A better search"}"#).status == 200)
        #expect(try keys("?sort=name&order=asc") == ["search", "banner", "checkout", "Zebra"])
        #expect(try server.request("PUT", "/v1/experiments/Zebra", #"{"tags":["animals","web"]}"#).status == 200)
        #expect(try keys("?sort=tags&order=asc") == ["search", "Zebra", "checkout", "banner"])
        // Before a look of this process, what runs comes before what does not.
        #expect(try keys("?sort=verdict") == ["Zebra", "checkout", "banner", "search"])
        server.stop()
    }

    @Test func `Experiments are sorted by how long they have had users`() throws {
        let now = Date.now
        func expose(_ user: String, to experiment: String, _ variation: String, daysAgo: Double) throws {
            let time = now.addingTimeInterval(-86_400 * daysAgo).formatted(.iso8601)
            let body =
                #"{"user_id":"\#(user)","experiment":"\#(experiment)","variation_key":"\#(variation)","timestamp":"\#(time)"}"#
            #expect(try server.request("POST", "/v1/exposures", body).status == 200)
        }
        try expose("u1", to: "search", "a", daysAgo: 1)
        try expose("u2", to: "checkout", "old", daysAgo: 4)
        try expose("u3", to: "search", "b", daysAgo: 3)
        #expect(try keys("?sort=day") == ["checkout", "search", "Zebra", "banner"])
        #expect(try keys("?sort=day&order=asc") == ["banner", "Zebra", "search", "checkout"])
        server.stop()
    }

    @Test func `Experiments are listed by their ids`() throws {
        let ids = try ["search", "Zebra"].map { key in
            try #require(try server.request("GET", "/v1/experiments/\(key)")["id"].string)
        }
        let found = try server.request("GET", "/v1/experiments?id=\(ids.joined(separator: ",")),none")
        #expect(found["experiments"].array?.map(\.["key"].string) == ["Zebra", "search"])
        #expect(try server.request("GET", "/v1/flags?id=1").status == 400)
        server.stop()
    }

    @Test func `Filters hold together, and pages say how many there are`() throws {
        #expect(try keys("?status=running,draft") == ["Zebra", "banner", "checkout"])
        #expect(try keys("?status=not_started") == [])
        #expect(try keys("?owner=ann") == ["checkout"])
        #expect(try keys("?tag=web&status=draft") == ["banner"])
        #expect(try keys("?q=STRIPES") == ["Zebra"])
        let page = try server.request("GET", "/v1/overview?limit=1&offset=2&q=a")
        #expect(page["total"] == 4)
        #expect(page["experiments"].array?.map(\.["key"].string) == ["search"])
        #expect(page["statuses"]["running"] == 2 && page["statuses"]["draft"] == 1)
        #expect(page["owners"] == ["Ann", "ann", "bob"] && page["tags"] == ["web"])
        // The counts by status do not depend on the chosen status.
        #expect(try server.request("GET", "/v1/overview?status=draft")["statuses"]["running"] == 2)
        for query in ["sort=size", "order=up", "offset=-1", "limit=101", "limit=0", "status=going", "color=red"] {
            #expect(try server.request("GET", "/v1/overview?\(query)").status == 400, "\(query)")
        }
        server.stop()
    }

    @Test func `An experiment has its users, the verdict over its metrics, and what is wrong`() throws {
        try report(0..<400, of: "checkout", "old", buying: 80)
        try report(400..<800, of: "checkout", "new", buying: 240)
        let checkout = try #require(
            try server.request("GET", "/v1/overview?q=checkout")["experiments"].array?.first)
        #expect(checkout["users"] == 800)
        #expect(checkout["days"].array?.count == 1 && checkout["first_day"] == checkout["days"].array?.first?["day"])
        #expect(checkout["verdict"]["decision"] == "ship" && checkout["verdict"]["winner"] == "new")
        #expect(checkout["verdict"]["lift"].double ?? 0 > 1)
        #expect(checkout["alarms"] == [])
        // The same as the results say.
        let results = try server.request("GET", "/v1/experiments/checkout/results")
        #expect(results["verdict"]["decision"] == "ship" && results["users"]["counted"] == 800)
        try report(1_000..<1_400, of: "Zebra", "on", buying: 0)
        let zebra = try #require(try server.request("GET", "/v1/overview?q=zebra")["experiments"].array?.first)
        #expect(zebra["verdict"] == .null)
        #expect(zebra["alarms"].array?.first?["kind"] == "sample_ratio")
        #expect(zebra["alarms"].array?.first?["message"].string?.contains("the users are not split") == true)
        server.stop()
    }

    @Test func `The values of a user's flags are evaluated without enrolling anybody`() throws {
        #expect(try server.request("PUT", "/v1/attributes/country", #"{"type":"country"}"#).status < 300)
        let condition = #"{"type":"custom_attribute","name":"country","match":"exact","value":"de"}"#
        let flag = #"""
            {"type":"boolean","variations":[{"key":"on","value":true},{"key":"off","value":false}],
            "rules":[{"audience":\#(condition),"variation":"on"}],"otherwise":"off"}
            """#
        #expect(try server.request("PUT", "/v1/flags/dark", flag).status == 201)
        func value() throws -> JSONValue? {
            let response = try server.request("GET", "/v1/profiles/ann/evaluations?defined_by=flag")
            #expect(response["next"] == .null)
            return response["evaluations"].array?.first?["value"]
        }
        #expect(try value() == false)
        #expect(try server.request("PATCH", "/v1/profiles/ann/attributes", #"{"country":"de"}"#).status == 200)
        #expect(try value() == true)
        let first = try server.request("GET", "/v1/profiles/ann/evaluations?limit=1")
        #expect(first["evaluations"].array?.first?["flag_key"] == "Zebra" && first["next"] == "Zebra")
        let experiments = try server.request("GET", "/v1/profiles/ann/evaluations?defined_by=experiment&q=check")
        #expect(experiments["evaluations"].array?.map(\.["flag_key"].string) == ["checkout"])
        #expect(try server.request("GET", "/v1/profiles/ann/evaluations?defined_by=me").status == 400)
        // Nobody takes part by being looked at.
        #expect(try server.request("GET", "/v1/profiles/ann").status == 404)
        server.stop()
    }

    @Test func `A flag's preview says how many users would get another value`() throws {
        let flag =
            #"{"type":"boolean","variations":[{"key":"on","value":true},{"key":"off","value":false}],"otherwise":"off"}"#
        #expect(try server.request("PUT", "/v1/flags/dark", flag).status == 201)
        #expect(try server.request("PUT", "/v1/attributes/country", #"{"type":"country"}"#).status < 300)
        for (user, country) in [("ann", "de"), ("bob", "fr"), ("cleo", "de")] {
            let body = #"{"country":"\#(country)"}"#
            #expect(try server.request("PATCH", "/v1/profiles/\(user)/attributes", body).status == 200)
        }
        // Who has a profile and no attributes is a user, too.
        #expect(
            try server.request("PUT", "/v1/profiles/dan", #"{"user_id":"dan","experiment_bucket_map":{}}"#).status < 300
        )
        let rule =
            #"{"rules":[{"audience":{"type":"custom_attribute","name":"country","match":"exact","value":"de"},"variation":"on"}]}"#
        let users = try server.request("POST", "/v1/flags/dark/preview", rule)["users"]
        #expect(users["examined"] == 4 && users["complete"] == true && users["changed"] == 2)
        #expect(users["changes"] == [["from": "off", "to": "on", "users": 2]])
        #expect(users["results"] == ["off": 2, "on": 2])
        #expect(try server.request("POST", "/v1/flags/dark/preview", "{}")["users"]["changed"] == 0)
        // A value that is changed under its key is a change, too.
        let values = #"{"variations":[{"key":"on","value":true},{"key":"off","value":true}]}"#
        #expect(try server.request("POST", "/v1/flags/dark/preview", values)["users"]["changed"] == 4)
        server.stop()
    }
}

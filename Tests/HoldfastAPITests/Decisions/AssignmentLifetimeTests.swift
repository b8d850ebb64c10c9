import APITestSupport
import Chronology
import Foundation
import JSON
import Testing

/// `assignment_ttl` of experiments and projects. How assignments expire is in `ClockTests`.
@Suite struct AssignmentLifetimeTests {
    private let server: any TestServer

    init() throws {
        server = try startTestServer()
    }

    @discardableResult
    private func put(_ target: String, _ body: String) throws -> TestResponse {
        try server.request("PUT", "/v1/\(target)", body)
    }

    /// How many seconds a user's new assignment lasts; `nil` for ever.
    private func lifetime(_ experiment: String, of user: String) throws -> Double? {
        let body = #"{"user_id":"\#(user)","experiment":"\#(experiment)"}"#
        #expect(try server.request("POST", "/v1/assign", body).status == 200)
        let stored = try server.request("GET", "/v1/profiles/\(user)/experiments/\(experiment)")
        guard let expiry = try date(stored["expires_at"]) else { return nil }
        return try expiry.timeIntervalSince(#require(try date(stored["updated_at"])))
    }

    private func date(_ value: JSONValue) throws -> Date? {
        let format = Date.ISO8601FormatStyle(includingFractionalSeconds: true)
        return try value.string.map { try Date($0, strategy: format) }
    }

    @Test func `An experiment says how long assignments last, or else the project does`() throws {
        #expect(try put("experiments/menu", #"{"variations":["a","b"]}"#)["assignment_ttl"].isNull)
        #expect(try lifetime("menu", of: "ann") == nil)
        #expect(try put("projects/default", #"{"assignment_ttl":"30d"}"#)["assignment_ttl"] == "30d")
        #expect(try server.request("GET", "/v1/projects/default")["assignment_ttl"] == "30d")
        #expect(try lifetime("menu", of: "bob") == 30 * 86_400)
        let changed = try put("experiments/menu", #"{"assignment_ttl":"12h"}"#)
        #expect(changed["assignment_ttl"] == "12h")
        #expect(try lifetime("menu", of: "cyd") == 43_200)
        // Who takes it over has it as long as the experiment says now.
        #expect(try server.request("POST", "/v1/profiles/new/merge", #"{"from":"bob"}"#).status == 200)
        #expect(try lifetime("menu", of: "new") == 43_200)
        #expect(try put("experiments/menu", #"{"assignment_ttl":"forever"}"#).status == 200)
        #expect(try lifetime("menu", of: "dee") == nil)
        // What GET shows, PUT takes, and nothing changes.
        let (experiment, project) = (
            try server.request("GET", "/v1/experiments/menu"), try server.request("GET", "/v1/projects/default")
        )
        #expect(try put("experiments/menu", experiment.text).text == experiment.text)
        #expect(try put("projects/default", project.text).text == project.text)
        #expect(try put("projects/default", #"{"name":"Shop"}"#)["assignment_ttl"] == "30d")
        #expect(try put("experiments/menu", #"{"assignment_ttl":null}"#)["assignment_ttl"].isNull)
        #expect(try lifetime("menu", of: "eve") == 30 * 86_400)
        #expect(try put("projects/default", #"{"assignment_ttl":null}"#)["assignment_ttl"].isNull)
        #expect(try lifetime("menu", of: "fay") == nil)
        let actions = try server.request("GET", "/v1/audit")["entries"].array?.compactMap { $0["action"].string }
        #expect(actions?.count { $0 == "project.put" } == 3, "\(actions ?? [])")
    }

    @Test func `A new project has it at once, an uploaded datafile keeps it, and devices get it`() throws {
        #expect(try put("projects/app", #"{"assignment_ttl":"7d","default":true}"#)["assignment_ttl"] == "7d")
        #expect(try put("datafile", AgentSamples.datafile).status == 200)
        #expect(try server.request("GET", "/v1/projects/app")["assignment_ttl"] == "7d")
        #expect(try put("experiments/menu", #"{"variations":["a","b"],"assignment_ttl":"2d"}"#).status == 201)
        let published = try server.request("GET", "/datafiles/app.json").json
        #expect(published["holdfast"] == ["assignmentTTL": "7d"])
        let experiments = published["experiments"].array ?? []
        #expect(experiments.first { $0["key"] == "menu" }?["holdfast"]["assignmentTTL"] == "2d")
        let copy = try server.request("PUT", "/v1/experiments/copy?from=menu", #"{"variations":["a","b"]}"#)
        #expect(copy["assignment_ttl"] == "2d")
    }

    @Test func `Files have it, and without it an experiment has the default`() throws {
        let body = #"{"experiments":[{"key":"menu","variations":["a","b"],"assignment_ttl":"2d"}]}"#
        #expect(try put("definitions", body).status == 200)
        #expect(try server.request("GET", "/v1/definitions")["experiments"].array?.first?["assignment_ttl"] == "2d")
        #expect(try put("definitions", body)["changes"] == [])
        let changed = try put("definitions", #"{"experiments":[{"key":"menu","variations":["a","b"]}]}"#)
        let members = changed["changes"].array?.first?["members"].array ?? []
        #expect(members.map { $0["member"] } == ["assignment_ttl"], "\(changed.text)")
        #expect(try server.request("GET", "/v1/experiments/menu")["assignment_ttl"].isNull)
    }

    @Test func `A file says it of the project, and a file that says nothing of the project leaves it`() throws {
        let body = #"{"project":{"assignment_ttl":"90d"}}"#
        let planned = try server.request("POST", "/v1/definitions/preview", body)
        let change = planned["changes"].array?.first ?? .null
        #expect(change["kind"] == "project" && change["key"] == "default" && change["action"] == "change")
        #expect(
            change["members"].array == [["member": "assignment_ttl", "before": .null, "after": "90d"]],
            "\(planned.text)")
        #expect(try put("definitions", body).status == 200)
        #expect(try server.request("GET", "/v1/projects/default")["assignment_ttl"] == "90d")
        // What GET shows, PUT takes, and nothing changes.
        let shown = try server.request("GET", "/v1/definitions")
        #expect(shown["project"] == ["assignment_ttl": "90d"])
        #expect(try put("definitions", shown.text)["changes"] == [])
        #expect(try put("definitions", #"{"metrics":[]}"#)["changes"] == [])
        #expect(try put("definitions", #"{"project":null}"#)["changes"] == [])
        let entry = try server.request("GET", "/v1/audit?action=project.put")["entries"].array?.first ?? .null
        #expect(entry["target"] == "default" && entry["after"]["assignment_ttl"] == "90d", "\(entry)")
        for (wrong, pointer) in [
            (#"{"project":{"assignment_ttl":"5"}}"#, "/project/assignment_ttl"),
            (#"{"project":{"asignment_ttl":"5d"}}"#, "/project/asignment_ttl"), (#"{"project":7}"#, "/project"),
        ] {
            let refused = try put("definitions", wrong)
            #expect([400, 422].contains(refused.status) && refused["pointer"].string == pointer, "\(refused.text)")
        }
        // Without the member the server's option counts again.
        #expect(try put("definitions", #"{"project":{}}"#)["changes"].array?.count == 1)
        #expect(try server.request("GET", "/v1/projects/default")["assignment_ttl"].isNull)
        #expect(try server.request("GET", "/v1/definitions").json.object?["project"] == nil)
    }

    @Test func `Where two people decide, one of them may not shorten how long users keep their variations`() throws {
        let (ann, bob) = ("ann-secret-0123456789", "bob-secret-0123456789")
        let server = try startTestServer(tokens: "admin ann \(ann)\nadmin bob \(bob)\n", approvals: 2)
        #expect(try server.request("PUT", "/v1/experiments/menu", #"{"variations":["a"]}"#, token: ann).status == 201)
        for (target, body) in [
            ("projects/default", #"{"assignment_ttl":"1d"}"#), ("experiments/menu", #"{"assignment_ttl":"1h"}"#),
        ] {
            let held = try server.request("PUT", "/v1/" + target, body, token: ann)
            #expect(held.status == 202, "\(held.text)")
            #expect(held["proposal"]["experiments"] == ["menu"])
            #expect(try server.request("GET", "/v1/" + target, token: ann)["assignment_ttl"].isNull)
            let id = try #require(held["proposal"]["id"].string)
            #expect(try server.request("POST", "/v1/proposals/\(id)/approve", token: bob).status == 200)
            #expect(try server.request("GET", "/v1/" + target, token: ann)["assignment_ttl"].string != nil)
        }
    }

    @Test(arguments: [#""5""#, #""0d""#, #""4000d""#, "30", "true", #""""#])
    func `A wrong one is refused with what is required`(value: String) throws {
        #expect(try put("experiments/menu", #"{"variations":["a","b"]}"#).status == 201)
        let body = #"{"assignment_ttl":\#(value)}"#
        for target in ["experiments/menu", "projects/default", "projects/new"] {
            let refused = try put(target, body)
            #expect([400, 422].contains(refused.status), "\(target): \(refused.text)")
            #expect(refused.text.contains("/assignment_ttl"), "\(target): \(refused.text)")
        }
        #expect(try server.request("GET", "/v1/projects/new").status == 404)
    }
}

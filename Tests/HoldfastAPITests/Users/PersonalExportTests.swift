import APITestSupport
import JSON
import Testing

/// Everything that is kept about one person, and its erasure.
@Suite struct PersonalExportTests {
    private let server: any TestServer

    init() throws {
        server = try startTestServer()
    }

    private func ask(_ method: String, _ target: String, _ body: String? = nil) throws -> TestResponse {
        let response = try server.request(method, target, body)
        #expect(response.status < 300, "\(method) \(target): \(response.text)")
        return response
    }

    /// Something of each kind.
    private func fill(_ user: String, events: Int) throws {
        _ = try ask("PUT", "/v1/experiments/checkout", #"{"id":"7","variations":["control","new"]}"#)
        _ = try ask("PUT", "/v1/attributes/country", #"{"type":"country"}"#)
        _ = try ask("POST", "/ups/save", profile(user, ["7": "x", "8": "y"]))
        _ = try ask("PUT", "/v1/profiles/\(user)/experiments/9", #"{"variation_id":"z"}"#)
        _ = try ask("PATCH", "/v1/profiles/\(user)/attributes", #"{"country":"de"}"#)
        _ = try ask("PATCH", "/v1/sticky/id/\(user)", #"{"assignments":{"e__0":"a"}}"#)
        _ = try ask("POST", "/v1/exposures", #"{"user_id":"\#(user)","experiment":"checkout","variation_key":"new"}"#)
        for _ in 0..<events { _ = try ask("POST", "/v1/events", #"{"user_id":"\#(user)","goal":"buy"}"#) }
        let fields = ["X-Optimizely-SDK-Key: default", "Content-Type: application/json"]
        let force = #"{"userId":"\#(user)","experimentKey":"checkout","variationKey":"new"}"#
        #expect(try server.request("POST", "/v1/override", force, fields: fields).status == 200)
    }

    @Test func `The whitelists of datafiles are exported, and erased with the user`() throws {
        let datafile = """
            {"version":"4","accountId":"1","projectId":"2","revision":"7","attributes":[],"audiences":[],"events":[],\
            "groups":[],"featureFlags":[],"experiments":[{"id":"100","key":"r","layerId":"100","status":"Running",\
            "forcedVariations":{"jane@example.com":"new","joe":"old"},"audienceIds":[],"variations":[{"id":"1","key":"old"},\
            {"id":"2","key":"new"}],"trafficAllocation":[]}],"rollouts":[{"id":"200","experiments":[{"id":"201","key":"201",\
            "layerId":"200","status":"Running","forcedVariations":{"jane@example.com":"on"},"audienceIds":[],\
            "variations":[{"id":"3","key":"on"}],"trafficAllocation":[]}]}]}
            """
        let fields = ["X-Optimizely-SDK-Key: other"]
        _ = try ask("PUT", "/v1/projects/default", "{}")
        _ = try ask("PUT", "/v1/projects/other", "{}")
        #expect(try server.request("PUT", "/v1/datafile", datafile, fields: fields).status == 200)
        let export = try ask("GET", "/v1/profiles/jane%40example.com/export")
        #expect(
            export["whitelists"] == [
                ["sdk_key": "other", "experiment_key": "r", "variation_key": "new"],
                ["sdk_key": "other", "experiment_key": "201", "variation_key": "on"],
            ])
        let erasure = try ask("DELETE", "/v1/profiles/jane%40example.com")
        #expect(erasure["whitelists"] == ["other"])
        for target in ["/v1/datafile", "/datafiles/other.json", "/v1/audit", "/v1/experiments/r"] {
            let response = try server.request("GET", target, fields: fields)
            #expect(response.status == 200 && !response.text.contains("jane"), "\(target)")
        }
        #expect(try server.request("GET", "/v1/datafile", fields: fields).text.contains(#""joe":"old""#))
        #expect(try ask("GET", "/v1/audit")["entries"].array?.first?["action"] == "datafile.put")
        #expect(try server.request("DELETE", "/v1/profiles/jane%40example.com").status == 404)
        #expect(try server.request("GET", "/v1/profiles/jane%40example.com/export").status == 404)
    }

    @Test func `The export of a person has everything, and the erasure says how much it was`() throws {
        try fill("ann", events: 600)
        try fill("bob", events: 1)
        let export = try ask("GET", "/v1/profiles/ann/export")
        #expect(export["user_id"] == "ann")
        let map = export["profile"]["experiment_bucket_map"]
        #expect(map["8"]["variation_id"] == "y" && map["8"]["source"] == "saved")
        #expect(map["9"]["source"] == "override")
        #expect(export["attributes"] == ["country": "de"])
        #expect(
            export["forced_variations"]
                == [["sdk_key": "default", "experiment_key": "checkout", "variation_key": "new"]])
        #expect(
            export["sticky_documents"]
                == [["attributeName": "id", "attributeValue": "ann", "assignments": ["e__0": "a"]]])
        #expect(export["exposures"].array?.map { $0["experiment_key"] } == ["checkout"])
        #expect(export["goal_events"].array?.count == 600)
        #expect(export["audit_entries"].array?.map { $0["action"] } == ["forced_variation.set", "override.set"])
        #expect(!export.text.contains("bob"))

        let erasure = try ask("DELETE", "/v1/profiles/ann")
        #expect(erasure["user_id"] == "ann")
        #expect(
            erasure["erased"] == [
                "profiles": 1, "assignments": 3, "attributes": 1, "forced_variations": 1, "exposures": 1,
                "goal_events": 600, "sticky_documents": 1, "audit_entries": 2,
            ])
        for method in ["DELETE", "GET"] {
            let target = method == "GET" ? "/v1/profiles/ann/export" : "/v1/profiles/ann"
            let nothing = try server.request(method, target)
            #expect(nothing.status == 404)
            #expect(nothing["detail"] == "nothing is stored about the user")
        }
        #expect(try ask("GET", "/v1/profiles/bob/export")["goal_events"].array?.count == 1)
        server.stop()
    }

    @Test func `An export has what was stored when it began`() throws {
        try fill("ann", events: 1_000)
        let export = try server.stream("GET", "/v1/profiles/ann/export")
        var text = try export.receiveChunk() ?? ""
        _ = try ask("POST", "/v1/events", #"{"user_id":"ann","goal":"late"}"#)
        _ = try ask("PUT", "/v1/profiles/ann/experiments/10", #"{"variation_id":"late"}"#)
        while let chunk = try export.receiveChunk() { text += chunk }
        let document = try JSONParser().parse(Array(text.utf8))
        #expect(document["goal_events"].array?.count == 1_000 && document["audit_entries"].array?.count == 2)
        #expect(!text.contains("late"))
        server.stop()
    }

    @Test func `A person without a profile can be exported and erased`() throws {
        _ = try ask("POST", "/v1/events", #"{"user_id":"ann","goal":"buy"}"#)
        let export = try ask("GET", "/v1/profiles/ann/export")
        #expect(export["profile"] == .null && export["goal_events"].array?.count == 1)
        #expect(try ask("DELETE", "/v1/profiles/ann")["erased"]["goal_events"] == 1)
        #expect(try server.request("GET", "/v1/profiles/nobody/export").status == 404)
        server.stop()
    }
}

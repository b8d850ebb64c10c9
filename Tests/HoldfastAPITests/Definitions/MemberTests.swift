import APITestSupport
import JSON
import Testing

/// A misspelt member of a request's body is refused, except where a published contract allows others.
@Suite struct MemberTests {
    private let server: any TestServer

    init() throws {
        server = try startTestServer()
        #expect(
            try server.request("PUT", "/v1/experiments/checkout", #"{"id":"7","variations":["a","b"]}"#).status == 201)
        #expect(try server.request("PUT", "/v1/attributes/age", #"{"type":"number"}"#).status == 201)
    }

    @Test(arguments: [
        ("POST", "/v1/assign", #"{"user_id":"u","experiment":"checkout","atributes":{}}"#, "/atributes", "attributes"),
        ("POST", "/v1/evaluations", #"{"userId":"u"}"#, "/userId", "user_id"),
        ("POST", "/v1/evaluations", #"{"user_id":"u","include-reasons":true}"#, "/include-reasons", "include_reasons"),
        ("POST", "/v1/bucket", #"{"bucketing_id":"u","parentid":"7"}"#, "/parentid", "parent_id"),
        ("POST", "/v1/profiles/lookup", #"{"user_ids":["u"],"detail":true}"#, "/detail", nil),
        (
            "POST", "/v1/exposures", #"{"user_id":"u","experiment":"7","variation_kye":"a"}"#, "/variation_kye",
            "variation_key"
        ),
        ("POST", "/v1/events", #"{"user_id":"u","goal":"g","valeu":3}"#, "/valeu", "value"),
        ("POST", "/v1/events", #"{"user_id":"u","goal":"g","x/y":3}"#, "/x~1y", nil),
        ("PUT", "/v1/profiles/u/experiments/7", #"{"variation_id":"1","sticky":true}"#, "/sticky", nil),
        ("PUT", "/v1/attributes/age", #"{"type":"number","multple":true}"#, "/multple", "multiple"),
        ("PUT", "/v1/segments/s", #"{"condition":[]}"#, "/condition", "conditions"),
    ])
    func `An unknown member is refused with its place and the name that was meant`(
        method: String, target: String, body: String, pointer: String, meant: String?
    ) throws {
        let response = try server.request(method, target, body)
        #expect(response.status == 400)
        #expect(response["pointer"].string == pointer)
        let detail = response["detail"].string ?? ""
        #expect(detail.contains("did you mean") == (meant != nil), "\(detail)")
        if let meant { #expect(detail.hasSuffix("did you mean `\(meant)`?"), "\(detail)") }
        #expect(try server.request("GET", "/v1/events").body.isEmpty)
        #expect(try server.request("GET", "/v1/profiles").body.isEmpty)
    }

    @Test(arguments: [
        ("GET", "/v1/experiments/navi", "", "navigation"), ("DELETE", "/v1/experiments/navigaton", "", "navigation"),
        ("GET", "/v1/experiments/navi/results?goal=g", "", "navigation"), ("GET", "/v1/flags/chekout", "", "checkout"),
        ("GET", "/v1/profiles/u/experiments/navigatoin/explain", "", "navigation"),
        ("POST", "/v1/assign", #"{"user_id":"u","experiment":"navi"}"#, "navigation"),
        ("POST", "/v1/exposures", #"{"user_id":"u","experiment":"Navigation","variation_key":"a"}"#, "navigation"),
        ("GET", "/v1/attributes/agee", "", "age"), ("DELETE", "/v1/attributes/aeg", "", "age"),
        ("PATCH", "/v1/profiles/u/attributes", #"{"agee":1}"#, "age"),
        ("GET", "/v1/segments/adult", "", "adults"), ("DELETE", "/v1/segments/adlts", "", "adults"),
        ("PUT", "/v1/segments/s", #"{"conditions":{"type":"custom_attribute","name":"agee","value":1}}"#, "age"),
        ("PUT", "/v1/experiments/e", #"{"variations":["a"],"audience":{"segment":"adult"}}"#, "adults"),
        (
            "PUT", "/v1/flags/f",
            #"{"type":"boolean","variations":[{"key":"shown","value":true}],"otherwise":"show"}"#, "shown"
        ),
        ("POST", "/ofrep/v1/evaluate/flags/navi", #"{"context":{"targetingKey":"u"}}"#, "navigation"),
    ])
    func `An error about a name that is not defined suggests one that is`(
        method: String, target: String, body: String, meant: String
    ) throws {
        _ = try server.request("PUT", "/v1/experiments/navigation", #"{"variations":["a","b"]}"#)
        let adults = #"{"conditions":{"type":"custom_attribute","name":"age","match":"ge","value":18}}"#
        #expect(try server.request("PUT", "/v1/segments/adults", adults).status == 201)
        let response = try server.request(method, target, body)
        #expect((400...422).contains(response.status), "\(response.text)")
        #expect(response.text.contains("did you mean '\(meant)'?"), "\(response.text)")
    }

    @Test func `A query parameter that is not known is refused with the one that was meant`() throws {
        let response = try server.request("GET", "/v1/profiles/u?detials=true")
        #expect(response["detail"].string?.hasSuffix("got `detials`; did you mean `detail`?") == true)
    }

    @Test(arguments: [
        ("POST", "/v1/experiments", "PUT /v1/experiments/{key}"), ("PUT", "/v1/flags", "PUT /v1/flags/{key}"),
        ("POST", "/v1/flags/f", "PUT /v1/flags/{key}"), ("PATCH", "/v1/experiments/e", "PUT /v1/experiments/{key}"),
        ("DELETE", "/v1/segments", "DELETE /v1/segments/{name}"), ("GET", "/v1/evaluations", "POST /v1/evaluations"),
        ("PUT", "/v1/bucket", "POST /v1/bucket"), ("POST", "/v1/profiles/u", "PUT /v1/profiles/{user_id}"),
        ("DELETE", "/v1/bucket", nil),
    ])
    func `A wrong method is answered with the route that was probably meant`(
        method: String, target: String, meant: String?
    ) throws {
        let response = try server.request(method, target, "{}")
        #expect(response.status == 405)
        let detail = response["detail"].string ?? ""
        #expect(detail.contains("did you mean") == (meant != nil), "\(detail)")
        if let meant { #expect(detail.hasSuffix("; did you mean \(meant)?"), "\(detail)") }
    }

    @Test func `In a batch only the element with the unknown member is refused`() throws {
        let events = #"[{"user_id":"u","goal":"g"},{"user_id":"u","goal":"g","tag":{}}]"#
        let stored = try server.request("POST", "/v1/events", events)["results"].array
        #expect(stored?.map { $0["status"] } == ["stored", "refused"])
        let requests =
            #"[{"user_id":"u","experiment":"checkout"},{"user_id":"u","experiment":"checkout","sdkKey":"x"}]"#
        let assigned = try server.request("POST", "/v1/assign", requests).json.array
        #expect(assigned?.first?["source"] == "bucketed")
        #expect(assigned?.last?["variation_id"].isNull == true)
    }

    @Test func `A condition of a segment has no other members either`() throws {
        let conditions = #"["or",{"type":"custom_attribute","name":"age","mtach":"gt","value":1}]"#
        let response = try server.request("PUT", "/v1/segments/s", #"{"conditions":\#(conditions)}"#)
        #expect(response.status == 422)
        #expect(response["pointer"] == "/conditions/1/mtach")
    }

    @Test(arguments: [
        ("PUT", "/v1/profiles/u", #"{"experiment_bucket_map":{"7":{"variation_id":"1","at":3}},"note":1}"#),
        ("PATCH", "/v1/profiles/u", #"{"experiment_bucket_map":{},"note":1}"#),
        ("POST", "/v1/profiles", #"{"user_id":"u","experiment_bucket_map":{},"note":1}"#),
        ("POST", "/ups/save", #"{"user_id":"u","experiment_bucket_map":{},"note":1}"#),
        ("POST", "/ups/lookup", #"{"user_id":"u","note":1}"#),
        ("POST", "/v1/activate?experimentKey=checkout", #"{"userId":"u","note":1}"#),
        (
            "PUT", "/v1/datafile",
            """
            {"version":"4","accountId":"1","projectId":"2","revision":"3","attributes":[],"audiences":[],"events":[],\
            "groups":[],"experiments":[],"note":1}
            """
        ),
    ])
    func `A published contract that allows other members is kept`(method: String, target: String, body: String) throws {
        let fields = ["X-Optimizely-SDK-Key: default", "Content-Type: application/json"]
        let response = try server.request(method, target, body, fields: fields)
        #expect((200...201).contains(response.status), "\(response.text)")
        #expect(response["refused"] != 1)
    }
}

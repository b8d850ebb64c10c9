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
        ("PUT", "/v1/experiments/checkout", #"{"varations":["a"]}"#, "/varations", "variations"),
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

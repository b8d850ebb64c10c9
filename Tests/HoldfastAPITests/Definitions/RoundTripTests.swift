import APITestSupport
import JSON
import Testing

/// What `GET` returns is accepted by `PUT`, and changes nothing. The tests of the same name of the core have every kind of it.
@Suite struct RoundTripTests {
    private let server: any TestServer

    init() throws {
        server = try startTestServer()
        _ = try server.request("PUT", "/v1/attributes/country", #"{"type":"string"}"#)
        _ = try server.request("PUT", "/v1/segments/germans", #"{"conditions":\#(Self.germans)}"#)
    }

    private static let germans = #"{"type":"custom_attribute","name":"country","value":"de"}"#

    /// Sends back what a `GET` returns.
    private func expectRoundTrip(_ target: String) throws {
        let shown = try server.request("GET", target)
        #expect(shown.status == 200, "\(shown.text)")
        let audited = try server.request("GET", "/v1/audit")["entries"].array?.count
        let put = try server.request("PUT", target.prefix { $0 != "?" }.description, shown.text)
        #expect(put.status == 200, "\(put.text)")
        #expect(try server.request("GET", target).json == shown.json)
        #expect(try server.request("GET", "/v1/audit")["entries"].array?.count == audited, "\(shown.text)")
    }

    @Test func `What is read of each kind of definition changes nothing`() throws {
        for (target, body) in [
            ("attributes/plan", #"{"type":"selection","values":["a","b"],"multiple":true}"#),
            ("metrics/orders", #"{"kind":"count","goal":"order"}"#),
            (
                "experiments/e",
                #"{"variations":["a","b"],"traffic":50,"audience":{"segment":"germans"},"metrics":{"primary":["orders"]}}"#
            ),
            ("flags/f", #"{"type":"boolean","rules":[{"key":"r","audience":\#(Self.germans),"experiment":{}}]}"#),
            ("holdouts/h", #"{"share":0,"flags":["f"]}"#),
        ] {
            #expect(try server.request("PUT", "/v1/\(target)", body).status == 201)
        }
        for target in [
            "segments/germans", "segments/germans?size=true", "attributes/country", "attributes/plan", "metrics/orders",
            "experiments/e", "experiments/r", "flags/e", "flags/f", "holdouts/h",
        ] {
            try expectRoundTrip("/v1/\(target)")
        }
    }

    @Test func `A change of what was read is made, and audited with the audience before and after`() throws {
        let body = #"{"variations":["a","b"],"audience":\#(Self.germans)}"#
        #expect(try server.request("PUT", "/v1/experiments/e", body).status == 201)
        var edited = try #require(try server.request("GET", "/v1/experiments/e").json.object)
        #expect(edited["audience"].map { String(decoding: $0.encoded(), as: UTF8.self) } == Self.germans)
        edited["audience"] = [["segment": "germans"]]
        edited["traffic"] = 50
        let text = String(decoding: JSONValue.object(edited).encoded(), as: UTF8.self)
        let put = try server.request("PUT", "/v1/experiments/e", text)
        #expect(put.status == 200 && put["traffic"] == 50 && put["audience"] == [["segment": "germans"]], "\(put.text)")
        let entry = try #require(try server.request("GET", "/v1/audit")["entries"].array?.first)
        #expect(entry["before"]["experiment"]["audience"]["name"] == "country")
        #expect(entry["after"]["experiment"]["audience"] == [["segment": "germans"]])
    }
}

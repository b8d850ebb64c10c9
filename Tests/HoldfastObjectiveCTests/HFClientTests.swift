import Foundation
import HoldfastClient
import HoldfastObjectiveC
import Testing

/// The class for Objective-C, as far as Linux can call it: from Swift, with the objects that Objective-C gives.
@Suite(.timeLimit(.minutes(2))) struct HFClientTests {
    /// A server with one flag of each type.
    private final class Server: HoldfastTransport {
        private let (bodies, continuation) = AsyncStream<(path: String, body: String)>.makeStream()

        func open(_ request: TransportRequest) async throws(HoldfastError) -> TransportResponse {
            continuation.yield((request.url.path, String(decoding: request.body ?? Data(), as: UTF8.self)))
            let text: String
            switch request.url.path {
            case "/v1/evaluations":
                let flags = [
                    ("on", "true"), ("name", #""Ada""#), ("count", "3"), ("rate", "0.5"),
                    ("theme", #"{"dark":[true,null]}"#),
                ]
                .map { #"{"flag_key":"\#($0.0)","enabled":true,"type":"json","value":\#($0.1)}"# }
                text = #"{"user_id":"ada","revision":"1","evaluations":[\#(flags.joined(separator: ","))]}"#
            case "/v1/profiles/attributes": text = #"{"imported":2,"refused":0,"errors":[]}"#
            default: text = #"{"results":[{"index":0,"status":"stored"}]}"#
            }
            let (body, output) = AsyncThrowingStream<Data, any Error>.makeStream()
            output.yield(Data(text.utf8))
            output.finish()
            return TransportResponse(status: 200, body: body)
        }

        func close() { continuation.finish() }

        /// What was sent, once the client is destroyed.
        func sent() async -> [(path: String, body: String)] {
            var all: [(path: String, body: String)] = []
            for await body in bodies { all.append(body) }
            return all
        }
    }

    @Test func `Flags, events and attributes have their Foundation types`() async throws {
        let directory = FileManager.default.temporaryDirectory.appending(path: "holdfast-\(UUID().uuidString)")
        defer { try? FileManager.default.removeItem(at: directory) }
        var configuration = HoldfastConfiguration(
            endpoint: try #require(URL(string: "http://holdfast.test")), directory: directory)
        configuration.listensToChanges = false
        configuration.reportsEvaluationCounts = false
        let server = Server()
        let client = HFClient(try HoldfastClient(configuration: configuration, transport: server))
        #expect(client.bool(forFlag: "on", defaultValue: false) == false && client.userID == nil)
        #expect(throws: HoldfastError.self) { try client.setUser("ada", attributes: ["other": Date.self]) }
        try client.setUser("ada", attributes: ["country": "de" as NSString, "age": 40 as NSNumber])
        await withCheckedContinuation { done in client.fetchFlags { _ in done.resume() } }
        #expect(client.bool(forFlag: "on", defaultValue: false) && client.isFlagEnabled("on"))
        #expect(client.string(forFlag: "name", defaultValue: "") == "Ada" && client.userID == "ada")
        #expect(client.integer(forFlag: "count", defaultValue: 0) == 3)
        #expect(client.double(forFlag: "rate", defaultValue: 0) == 0.5)
        let theme = try #require(client.object(forFlag: "theme") as? [String: [Any]])
        #expect(theme["dark"]?.first as? Bool == true && theme["dark"]?.last is NSNull)
        #expect(client.object(forFlag: "missing") == nil)
        client.trackGoal("purchase", value: 49.5)
        client.reportExposure(ofExperiment: "paywall", variationKey: "b")
        try client.updateAttributes(["hobby": "movies" as NSString, "member": true as NSNumber])
        #expect(throws: HoldfastError.self) { try client.updateAttributes(["hobby": "games", "other": Date.self]) }
        try client.deleteAttributes(["hobby"])
        let error = await withCheckedContinuation { done in
            client.flush { done.resume(returning: $0 as? HoldfastError) }
        }
        #expect(error == nil)
        client.destroy()
        let sent = await server.sent()
        #expect(sent.contains { $0.path == "/v1/events" && $0.body.contains("49.5") })
        #expect(sent.contains { $0.path == "/v1/exposures" && $0.body.contains("paywall") })
        let attributes = sent.filter { $0.path == "/v1/profiles/attributes" }.map(\.body).joined()
        #expect(attributes.contains(#""member":true"#) && !attributes.contains("games"))
    }
}

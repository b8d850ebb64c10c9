import Foundation
import Synchronization
import Testing

@testable import HoldfastClient

/// Attributes against the built server over real sockets.
@Suite struct RealServerAttributeTests {
    private let directory: TemporaryDirectory
    private let server: RealServer

    init() async throws {
        directory = try TemporaryDirectory()
        server = try await RealServer()
    }

    private func declare() async throws {
        for (name, type) in [("country", "country"), ("age", "number")] {
            try await server.request("PUT", "/v1/attributes/\(name)", #"{"type":"\#(type)"}"#)
        }
    }

    @Test func `Attributes are stored in order, and a wrong one is refused by name, with its whole update`()
        async throws
    {
        try await declare()
        let client = try server.client(in: directory)
        let service = AttributeService(client: client)
        var outcomes = service.outcomes().makeAsyncIterator()
        try service.update(attributes: ["country": "de", "age": 30], userID: "ada")
        try service.update(attributes: ["age": 31], userID: "ada")
        try service.update(attributes: ["age": "old", "country": "it"], userID: "bob")
        try service.update(attributes: ["age": 20], userID: "bob")
        try service.delete(attributes: ["country"], userID: "ada")
        try await client.flush()
        var refused: [String] = []
        for _ in 0..<5 {
            guard let outcome = await outcomes.next() else { continue }
            if case .failure(let reason) = outcome.result { refused.append("\(outcome.userID): \(reason)") }
        }
        #expect(refused.count == 1)
        #expect(refused.first?.hasPrefix("bob: ") == true && refused.first?.contains("/attributes/age") == true)
        #expect(try await server.request("GET", "/v1/profiles/ada/attributes").contains(#""attributes":{"age":31}"#))
        #expect(
            try await server.request("GET", "/v1/profiles/bob/attributes").contains(#""attributes":{"age":20}"#))
        client.destroy()
    }

    @Test func `A refusal that does not fit the server's response is not taken for a delivery`() async throws {
        try await declare()
        let client = try server.client(in: directory) { $0.batchSize = 1_000 }
        let service = AttributeService(client: client)
        let refused = Mutex(0)
        client.core.notices.observe { notice in
            if case .refused = notice.outcome { refused.withLock { $0 += 1 } }
        }
        // Each refusal names the attribute several times; together they exceed the limit of a response.
        let wrong = String(repeating: "x", count: 1_000)
        for user in 0..<480 { try service.update(attributes: [wrong: 1], userID: "user\(user)") }
        try service.update(attributes: ["age": 30], userID: "ada")
        try await client.flush()
        #expect(refused.withLock { $0 } == 480)
        #expect(client.waitingEvents == 0)
        #expect(try await server.request("GET", "/v1/profiles/ada/attributes").contains(#""age":30"#))
        client.destroy()
    }

    @Test func `The server's definitions are those that the client compares with`() async throws {
        for (name, definition) in [
            ("age", #"{"type":"number"}"#), ("seen", #"{"type":"timestamp"}"#), ("born", #"{"type":"date"}"#),
            ("wakes", #"{"type":"time"}"#), ("country", #"{"type":"country"}"#), ("member", #"{"type":"boolean"}"#),
            ("plan", #"{"type":"selection","values":["free","pro"]}"#), ("name", #"{"type":"string"}"#),
            ("topics", #"{"type":"selection","values":["a","b"],"multiple":true}"#),
        ] { try await server.request("PUT", "/v1/attributes/\(name)", definition) }
        let client = try server.client(in: directory)
        let service = AttributeService(client: client)
        let now = Date()
        let right: [String: UserAttributeValue] = [
            "age": 40, "seen": .timestamp(now), "born": .date(now), "wakes": .time(now), "country": .country("DE"),
            "member": true, "plan": "pro", "name": "Ada", "topics": ["a", "b"],
        ]
        #expect(try await service.problems(of: right) == [:])
        #expect(try await service.problems(of: ["age": "old", "other": 1]).count == 2)
        // The server agrees.
        var outcomes = service.outcomes().makeAsyncIterator()
        try service.update(attributes: right, userID: "ada")
        try await client.flush()
        guard case .success = await outcomes.next()?.result else {
            Issue.record("refused")
            return
        }
        client.destroy()
    }

    @Test func `A refusal names all wrong attributes`() async throws {
        try await declare()
        let client = try server.client(in: directory)
        let service = AttributeService(client: client)
        var outcomes = service.outcomes().makeAsyncIterator()
        try service.update(attributes: ["age": "old", "unknown": 1], userID: "ada")
        try await client.flush()
        guard case .failure(let reason) = await outcomes.next()?.result else {
            Issue.record("not refused")
            return
        }
        #expect(reason.contains("/attributes/age") && reason.contains("/attributes/unknown"))
        client.destroy()
    }

    @Test func `An attribute that was stored counts for a flag's audience`() async throws {
        try await declare()
        try await server.putDatafile(revision: 1, controlEnd: 0)
        let client = try server.client(in: directory)
        try await client.initialize(user: HoldfastUser(id: "ada"), timeout: .seconds(60))
        #expect(client.evaluationDetails(flagKey: "checkout")?.variationKey == nil)
        try AttributeService(client: client).update(attributes: ["country": "de"])
        try await client.flush()
        try await client.fetchEvaluations()
        #expect(client.stringVariation(flagKey: "checkout", defaultValue: "") == "new")
        client.destroy()
    }

    @Test func `Attributes of an anonymous user become the account's at the login`() async throws {
        try await declare()
        let client = try server.client(in: directory)
        try await client.initializeAnonymously(timeout: .seconds(60))
        let service = AttributeService(client: client)
        try service.update(attributes: ["country": "de"])
        try await client.login(userID: "ada", timeout: .seconds(60))
        try service.update(attributes: ["age": 30])
        try await client.flush()
        let stored = try await server.request("GET", "/v1/profiles/ada/attributes")
        #expect(stored.contains(#""country":"de""#) && stored.contains(#""age":30"#))
        client.destroy()
    }
}

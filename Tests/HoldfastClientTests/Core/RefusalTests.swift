import Foundation
import Synchronization
import Testing

@testable import HoldfastClient

/// What may drop an event: Holdfast's own word on it, and nothing else.
@Suite struct RefusalTests {
    private func track(_ test: Client, _ goals: Range<Int>) {
        for number in goals { test.client.track(goalID: "goal\(number)", userID: "ada") }
    }

    /// The goals of events, by what became of them.
    private func settled(_ test: Client) -> Outcomes {
        let told = Outcomes()
        test.client.core.notices.observe { notice in
            guard case .goal(let event) = notice.event else { return }
            switch notice.outcome {
            case .delivered: told.add("delivered", event.goalID)
            case .refused: told.add("refused", event.goalID)
            case .dropped: told.add("dropped", event.goalID)
            case .postponed: break
            }
        }
        return told
    }

    private static let page = "<html><body><h1>400 Bad Request</h1><hr>proxy</body></html>"

    @Test(arguments: [
        StubServer.Response.status(400, ["content-type": "text/html"], page),
        .status(403, ["content-type": "text/html"], page),
        .status(413, ["content-type": "text/html"], page), .status(400), .status(422, [:], #"{"detail":"another's"}"#),
        .status(
            400, ["content-type": "application/problem+json"], #"{"title":"Bad Request","status":400,"traceId":"7"}"#),
        .status(200, ["content-type": "text/html"], page), .status(200, [:], "{}"),
        .status(200, [:], #"{"results":[]}"#),
        .status(200, [:], #"{"results":[{"index":0,"status":"queued"}]}"#),
        .status(302, ["location": "http://portal.test"]),
        .problem(400, "the query parameter 'v' is not known"),
    ])
    func `A response that is not Holdfast's own drops no event`(_ answer: StubServer.Response) async throws {
        let test = try Client(server: StubServer { _ throws(HoldfastError) in answer })
        let told = settled(test)
        track(test, 0..<16)
        await #expect(throws: HoldfastError.self) { try await test.client.flush() }
        #expect(test.client.waitingEvents == 16)
        // Two batches are cut in halves down to one event: 16, 8… and 15, 7…
        #expect(test.server.calls("/v1/events").count <= 9)
        test.server.respond { call throws(HoldfastError) in Client.usual(call) }
        try await test.client.flush()
        #expect(told.all == ["delivered": Set((0..<16).map { "goal\($0)" })])
        #expect(test.client.waitingEvents == 0)
    }

    @Test func `Lines survive a response that is not Holdfast's too`() async throws {
        let test = try Client(
            server: StubServer { _ throws(HoldfastError) in .status(400, ["content-type": "text/html"], Self.page) })
        let service = AttributeService(client: test.client)
        for age in 0..<10 { try service.update(attributes: ["age": .integer(Int64(age))], userID: "ada") }
        await #expect(throws: HoldfastError.self) { try await test.client.flush() }
        #expect(test.client.waitingEvents == 10)
        test.server.respond { call throws(HoldfastError) in Client.usual(call) }
        try await test.client.flush()
        let last = test.server.calls("/v1/profiles/attributes").last?.lines ?? []
        #expect(last.count == 10 && last.last?.contains(#""age":9"#) == true)
    }

    @Test func `An event that a proxy blocks stays queued, and does not delay others`() async throws {
        let test = try Client(
            server: StubServer { call throws(HoldfastError) in
                call.body.contains(#""goal5""#)
                    ? .status(403, ["content-type": "text/html"], Self.page) : Client.usual(call)
            })
        let told = settled(test)
        track(test, 0..<10)
        // Each attempt finds out more of where the trouble is.
        for _ in 0..<10 where test.client.waitingEvents > 1 { try? await test.client.flush() }
        #expect(test.client.waitingEvents == 1)
        #expect(told.all["delivered"]?.count == 9 && told.all["refused"] == nil)
    }

    @Test
    func `An attribute that a proxy does not let pass goes before later ones of its user, and delays no other user`()
        async throws
    {
        let test = try Client(
            server: StubServer { call throws(HoldfastError) in
                call.body.contains("'--") ? .status(403, ["content-type": "text/html"], Self.page) : Client.usual(call)
            })
        let service = AttributeService(client: test.client)
        try service.update(attributes: ["name": "'--"], userID: "ada")
        try service.update(attributes: ["name": "ada"], userID: "ada")
        try service.update(attributes: ["name": "bob"], userID: "bob")
        await #expect(throws: HoldfastError.self) { try await test.client.flush() }
        #expect(test.client.waitingEvents == 2)
        #expect(test.server.calls("/v1/profiles/attributes").last?.lines.map { $0.contains("bob") } == [true])
        test.server.respond { call throws(HoldfastError) in Client.usual(call) }
        try await test.client.flush()
        let names = test.server.calls("/v1/profiles/attributes").last?.lines ?? []
        #expect(names.map { $0.contains("'--") } == [true, false])
    }

    @Test func `A problem of Holdfast's that names an element drops this event only`() async throws {
        let test = try Client(
            server: StubServer { call throws(HoldfastError) in
                let events = (try? JSONDecoder().decode([HoldfastValue].self, from: Data(call.body.utf8))) ?? []
                guard let index = events.firstIndex(where: { $0["goal"] == "goal5" }) else { return Client.usual(call) }
                return .problem(400, "the body is not JSON", "/\(index)/tags")
            })
        let told = settled(test)
        track(test, 0..<10)
        try await test.client.flush()
        #expect(told.all["refused"] == ["goal5"] && told.all["delivered"]?.count == 9)
        #expect(test.server.calls("/v1/events").count == 2)
    }

    @Test func `What is too large together is sent in parts, and what is too large alone is dropped`() async throws {
        let test = try Client(
            server: StubServer { call throws(HoldfastError) in
                let events = (try? JSONDecoder().decode([HoldfastValue].self, from: Data(call.body.utf8))) ?? []
                let isTooLarge = events.count > 3 || call.body.contains(#""goal7""#)
                return isTooLarge ? .problem(413, "the body is longer than 300 bytes") : Client.usual(call)
            })
        let told = settled(test)
        track(test, 0..<10)
        try await test.client.flush()
        #expect(told.all["refused"] == ["goal7"] && told.all["delivered"]?.count == 9)
    }

    // MARK: Lines

    /// Refuses each line whose user is bad, names the first refusal only, and counts the others.
    private static func importing(_ call: StubServer.Call, asProblem: Bool) -> StubServer.Response {
        let refused = call.lines.indices.filter { call.lines[$0].contains("bad") }
        let errors = refused.prefix(1).map { #"{"line":\#($0 + 1),"detail":"no such attribute"}"# }.joined()
        let summary =
            #""imported":\#(call.lines.count - refused.count),"refused":\#(refused.count),"errors":[\#(errors)],"errors_left_out":\#(max(0, refused.count - 1))"#
        guard asProblem, refused.count == call.lines.count else { return .json("{\(summary)}") }
        return .status(
            422, ["content-type": "application/problem+json"],
            #"{"type":"about:blank","title":"Unprocessable Content","status":422,"detail":"nothing was imported",\#(summary)}"#
        )
    }

    @Test(arguments: [false, true]) func `A line that the response leaves out is not taken for stored`(
        _ asProblem: Bool
    ) async throws {
        let test = try Client(
            server: StubServer { call throws(HoldfastError) in Self.importing(call, asProblem: asProblem) })
        let service = AttributeService(client: test.client)
        let outcomes = Outcomes()
        test.client.core.notices.observe { notice in
            guard case .attributes(let update) = notice.event else { return }
            switch notice.outcome {
            case .delivered: outcomes.add("delivered", update.userID)
            case .refused: outcomes.add("refused", update.userID)
            default: outcomes.add("other", update.userID)
            }
        }
        for user in ["bad0", "good0", "bad1", "bad2", "good1", "bad3", "bad4"] {
            try service.update(attributes: ["a": 1], userID: user)
        }
        try await test.client.flush()
        #expect(
            outcomes.all == ["delivered": ["good0", "good1"], "refused": ["bad0", "bad1", "bad2", "bad3", "bad4"]])
        #expect(test.client.waitingEvents == 0)
    }

    @Test(arguments: [
        #"{"imported":0,"refused":0,"errors":[]}"#, #"{"refused":0}"#, #"{"imported":1,"refused":2,"errors":[]}"#,
        #"{"imported":9,"refused":0,"errors":[]}"#, #"{"imported":2,"refused":1,"errors":[{"line":9,"detail":"?"}]}"#,
    ])
    func `Counts that do not add up settle nothing`(_ body: String) async throws {
        let test = try Client(server: StubServer { _ throws(HoldfastError) in .json(body) })
        let service = AttributeService(client: test.client)
        for user in ["a", "b", "c"] { try service.update(attributes: ["a": 1], userID: user) }
        await #expect(throws: HoldfastError.self) { try await test.client.flush() }
        #expect(test.client.waitingEvents == 3)
    }
}

/// Names by what became of them.
private final class Outcomes: Sendable {
    private let told = Mutex<[String: Set<String>]>([:])

    var all: [String: Set<String>] { told.withLock { $0 } }

    func add(_ outcome: String, _ name: String) {
        told.withLock { _ = $0[outcome, default: []].insert(name) }
    }
}

import Foundation
import Testing

@testable import HoldfastClient

/// A request without a response does not hold up those after it.
@Suite(.timeLimit(.minutes(2))) struct StuckFetchTests {
    private let ada = HoldfastUser(id: "ada", attributes: ["country": "de"])

    /// A client whose server never responds to the evaluations of which the body has a text.
    private func client(stuckWith text: String) throws -> Client {
        try Client(
            server: StubServer { call throws(HoldfastError) in
                guard call.path == "/v1/evaluations", call.body.contains(text) else { return Client.usual(call) }
                return try await Self.nothing()
            })
    }

    private static func nothing() async throws(HoldfastError) -> StubServer.Response {
        try? await Task.sleep(for: .seconds(3_600))
        throw .cancelled
    }

    @Test func `The request of a former user does not delay that of the next one`() async throws {
        let test = try client(stuckWith: "bob")
        let errors = Log<HoldfastError?>()
        test.client.addFetchListener { errors.add($0) }
        try test.client.start(user: HoldfastUser(id: "bob"))
        await test.server.untilCalled("/v1/evaluations")
        #expect(try await test.client.initialize(user: ada) == .server)
        #expect(test.client.stringVariation(flagKey: "checkout", defaultValue: "") == "new")
        // The one that was cancelled is nobody's error.
        #expect(errors.all == [nil])
        test.client.destroy()
    }

    @Test func `Who waits for a former user's request gets the response for the next one`() async throws {
        let test = try client(stuckWith: "bob")
        async let former = test.client.initialize(user: HoldfastUser(id: "bob"))
        await test.server.untilCalled("/v1/evaluations")
        #expect(try await test.client.initialize(user: ada) == .server)
        #expect(try await former == .server)
        test.client.destroy()
    }

    @Test func `A request with former attributes does not delay that with the new ones`() async throws {
        let test = try client(stuckWith: #""de""#)
        try test.client.start(user: ada)
        await test.server.untilCalled("/v1/evaluations")
        test.client.updateUserAttributes(["country": "fr"])
        var changes = test.client.updates().makeAsyncIterator()
        if test.client.evaluationDetails(flagKey: "checkout") == nil { _ = await changes.next() }
        #expect(test.client.evaluationDetails(flagKey: "checkout")?.variationKey == "new")
        test.client.destroy()
    }

    @Test func `A poll without a response does not hold up a fetch`() async throws {
        let test = try Client()
        try await test.client.initialize(user: ada)
        await test.clock.untilSleeping(for: .seconds(600))
        test.server.respond { _ throws(HoldfastError) in try await Self.nothing() }
        test.clock.advance(by: .seconds(600))
        await test.server.untilCalled("/v1/evaluations", count: 2)
        test.server.respond { call throws(HoldfastError) in
            call.path == "/v1/evaluations" ? .json(Client.evaluations(revision: "2", columns: 4)) : Client.usual(call)
        }
        async let fetch: Void = test.client.fetchEvaluations()
        // The poll may still take a few seconds before it is stuck.
        await test.clock.untilSleeping(for: .seconds(3))
        test.clock.advance(by: .seconds(3))
        try await fetch
        #expect(test.client.intVariation(flagKey: "checkout", variable: "columns", defaultValue: 0) == 4)
        // Polling goes on.
        await test.clock.untilSleeping(for: .seconds(600))
        test.client.destroy()
    }

    @Test func `An exposure without a response does not hold up the flags`() async throws {
        let test = try Client(
            server: StubServer { call throws(HoldfastError) in
                guard call.path == "/v1/exposures" else { return Client.usual(call) }
                return try await Self.nothing()
            })
        test.client.reportExposure(experiment: "paywall", variationKey: "control", userID: "ada")
        async let flags = test.client.initialize(user: ada, timeout: .seconds(60))
        await test.clock.untilSleeping(for: .seconds(4))
        test.clock.advance(by: .seconds(4))
        #expect(try await flags == .server)
        test.client.destroy()
    }
}

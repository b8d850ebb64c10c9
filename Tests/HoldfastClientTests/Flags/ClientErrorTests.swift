import Foundation
import Testing

@testable import HoldfastClient

@Suite struct ClientErrorTests {
    private static let ada = HoldfastUser(id: "ada", attributes: ["country": "de"])

    @Test(arguments: [
        (
            HoldfastError.unauthorized(detail: "the token is unknown"),
            "the server does not accept the token: the token is unknown"
        ),
        (.unknownProject(detail: "no datafile"), "the server does not have the project: no datafile"),
        (
            .refused(status: 422, detail: "too long", pointer: "/a"),
            "the server refused the request (422): too long (/a)"
        ),
        (.notInitialized, "there is no current user; call start(user:) or initialize(user:) first"),
    ]) func `Errors have sentences`(_ error: HoldfastError, _ sentence: String) {
        #expect(error.localizedDescription == sentence)
    }

    @Test func `Errors have their types`() async throws {
        let test = try Client()
        await #expect(throws: HoldfastError.notInitialized) { try await test.client.fetchEvaluations() }
        await #expect(throws: HoldfastError.notInitialized) { try await test.client.assignment(experiment: "7001") }
        await #expect(throws: HoldfastError.self) { try await test.client.initialize(user: HoldfastUser(id: "")) }
        try await test.client.initialize(user: Self.ada)
        for (answer, error) in [
            (
                StubServer.Response.status(400, [:], #"{"detail":"no","pointer":"/a"}"#),
                HoldfastError.refused(status: 400, detail: "no", pointer: "/a")
            ),
            (.status(503, ["retry-after": "7"]), .unavailable(status: 503, retryAfter: .seconds(7))),
            (.status(429), .unavailable(status: 429, retryAfter: nil)),
        ] {
            test.server.respond { _ throws(HoldfastError) in answer }
            await #expect(throws: error) { try await test.client.fetchEvaluations() }
        }
        for body in ["", "[]", "{}", "not JSON"] {
            test.server.respond { _ throws(HoldfastError) in .json(body) }
            let thrown = await #expect(throws: HoldfastError.self) { try await test.client.fetchEvaluations() }
            guard case .invalidResponse = thrown else {
                Issue.record("\(String(describing: thrown))")
                continue
            }
        }
        #expect(test.client.isEnabled(flagKey: "checkout", defaultValue: false))
        test.client.destroy()
        await #expect(throws: HoldfastError.destroyed) { try await test.client.fetchEvaluations() }
        await #expect(throws: HoldfastError.destroyed) { try await test.client.flush() }
    }

    @Test func `A directory is used by one client at a time`() async throws {
        let directory = try TemporaryDirectory()
        let first = try Client(directory: directory)
        #expect(throws: HoldfastError.directoryInUse(directory.url.path)) { try Client(directory: directory) }
        first.client.destroy()
        _ = try Client(directory: directory)
    }

    @Test func `A client that is released destroys itself`() async throws {
        let directory = try TemporaryDirectory()
        do {
            let test = try Client(directory: directory) { $0.listensToChanges = true }
            try await test.client.initialize(user: Self.ada)
            _ = UserProfileService(client: test.client)
            _ = AttributeService(client: test.client)
        }
        _ = try Client(directory: directory)
    }
}

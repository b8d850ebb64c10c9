import Foundation
import Testing

@testable import HoldfastClient

/// Users before and after they log in.
@Suite(.timeLimit(.minutes(2))) struct IdentityTests {
    @Test func `An anonymous user keeps the id until a logout`() async throws {
        let directory = try TemporaryDirectory()
        let first = try Client(directory: directory)
        let id = first.client.anonymousUserID
        try await first.client.initializeAnonymously(attributes: ["country": "de"])
        #expect(first.client.currentUser == HoldfastUser(id: id, attributes: ["country": "de"]))
        first.client.destroy()

        let second = try Client(directory: directory)
        #expect(second.client.anonymousUserID == id)
        try await second.client.login(userID: "ada")
        #expect(second.client.currentUser?.id == "ada" && second.client.anonymousUserID == id)
        try await second.client.logout()
        #expect(second.client.anonymousUserID != id)
        #expect(second.client.currentUser?.id == second.client.anonymousUserID)
    }

    @Test func `Only variations that were seen are saved for the account, and only for the anonymous user`()
        async throws
    {
        let test = try Client()
        try await test.client.initializeAnonymously()
        try await test.client.login(userID: "ada")
        #expect(test.server.calls("/v1/profiles").isEmpty)
        try await test.client.logout()
        _ = test.client.stringVariation(flagKey: "checkout", defaultValue: "")
        try await test.client.login(userID: "bob")
        let call = try #require(test.server.calls("/v1/profiles").first)
        #expect(call.query == "on_conflict=keep")
        #expect(
            try JSONDecoder().decode(HoldfastValue.self, from: Data(call.body.utf8))
                == ["user_id": "bob", "experiment_bucket_map": ["7001": ["variation_id": "70012"]]])
        try await test.client.login(userID: "cyd")
        #expect(test.server.calls("/v1/profiles").count == 1)
    }

    @Test func `A login without the server keeps what was seen for later`() async throws {
        let test = try Client()
        try await test.client.initializeAnonymously()
        _ = test.client.stringVariation(flagKey: "checkout", defaultValue: "")
        test.server.respond { _ throws(HoldfastError) in throw .unreachable("it is down") }
        #expect(try await test.client.login(userID: "bob") == .nothing(.unreachable("it is down")))
        #expect(test.client.core.waiting(.save).count == 1)
        await #expect(throws: HoldfastError.self) { try await test.client.login(userID: "") }
        test.client.destroy()
        await #expect(throws: HoldfastError.destroyed) { try await test.client.login(userID: "ada") }
        await #expect(throws: HoldfastError.destroyed) { try await test.client.logout() }
    }

    @Test func `What was shown before the login is shown after it, unless the account has seen another variation`()
        async throws
    {
        let server = try RealServer()
        let directory = try TemporaryDirectory()
        try await server.putDatafile(revision: 1)
        let client = try server.client(in: directory)
        let germany: [String: UserAttributeValue] = ["country": "de"]
        for number in 0..<10 {
            try await client.logout(attributes: germany, timeout: .seconds(60))
            let shown = client.stringVariation(flagKey: "checkout", defaultValue: "")
            #expect(["control", "new"].contains(shown))
            try await client.login(userID: "user\(number)", attributes: germany, timeout: .seconds(60))
            #expect(client.stringVariation(flagKey: "checkout", defaultValue: "") == shown)
        }
        let own = client.stringVariation(flagKey: "checkout", defaultValue: "")
        var other = own
        while other == own {
            try await client.logout(attributes: germany, timeout: .seconds(60))
            other = client.stringVariation(flagKey: "checkout", defaultValue: "")
        }
        try await client.login(userID: "user9", attributes: germany, timeout: .seconds(60))
        #expect(client.stringVariation(flagKey: "checkout", defaultValue: "") == own)
        client.destroy()
    }
}

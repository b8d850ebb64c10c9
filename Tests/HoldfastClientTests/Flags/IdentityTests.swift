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
        // The app says at each start who is logged in.
        #expect(second.client.currentUser == nil)
        try await second.client.login(userID: "ada")
        #expect(second.client.currentUser?.id == "ada" && second.client.anonymousUserID == id)
        try await second.client.logout()
        #expect(second.client.anonymousUserID != id)
        #expect(second.client.currentUser?.id == second.client.anonymousUserID)
    }

    @Test func `A login is reported after what the anonymous user did, and only for the anonymous user`() async throws {
        let test = try Client()
        try await test.client.initializeAnonymously()
        let id = HoldfastValue.string(test.client.anonymousUserID)
        _ = test.client.stringVariation(flagKey: "checkout", defaultValue: "")
        test.client.track(goalID: "seen")
        try await test.client.login(userID: "ada")
        #expect(test.server.calls("/v1/evaluations").contains { $0.json["anonymous_id"] == id })
        try await test.client.flush()
        #expect(test.server.calls("/v1/logins").map(\.json) == [[["user_id": "ada", "anonymous_id": id]]])
        let paths = test.server.paths
        let login = try #require(paths.firstIndex(of: "/v1/logins"))
        for earlier in ["/v1/exposures", "/v1/events"] {
            #expect(try #require(paths.firstIndex(of: earlier)) < login)
        }
        // The first fetch after the delivery still names the anonymous user.
        for _ in 0..<2 { try await test.client.fetchEvaluations() }
        #expect(test.server.calls("/v1/evaluations").last?.json["anonymous_id"] == nil)
        try await test.client.login(userID: "cyd")
        try await test.client.flush()
        #expect(test.server.calls("/v1/logins").count == 1)
        test.client.destroy()
    }

    @Test func `A login without the server keeps what was shown, also after a restart, and is reported later`()
        async throws
    {
        let test = try Client()
        try await test.client.initializeAnonymously()
        let id = HoldfastValue.string(test.client.anonymousUserID)
        test.server.respond { _ throws(HoldfastError) in throw .unreachable("it is down") }
        #expect(try await test.client.login(userID: "bob") == .cache(.unreachable("it is down")))
        #expect(test.client.currentUser?.id == "bob")
        #expect(test.client.stringVariation(flagKey: "checkout", defaultValue: "") == "new")
        #expect(test.client.core.waiting(.login).count == 1)
        await #expect(throws: HoldfastError.self) { try await test.client.login(userID: "") }
        test.client.destroy()
        await #expect(throws: HoldfastError.destroyed) { try await test.client.login(userID: "ada") }
        await #expect(throws: HoldfastError.destroyed) { try await test.client.logout() }

        let later = try Client(directory: test.directory)
        later.server.respond { _ throws(HoldfastError) in throw .unreachable("it is down") }
        try await later.client.initialize(user: HoldfastUser(id: "bob"))
        #expect(later.client.stringVariation(flagKey: "checkout", defaultValue: "") == "new")
        #expect(later.server.calls("/v1/evaluations").last?.json["anonymous_id"] == id)
        later.server.respond { call throws(HoldfastError) in Client.usual(call) }
        try await later.client.flush()
        #expect(later.server.calls("/v1/logins").last?.json == [["user_id": "bob", "anonymous_id": id]])
        #expect(later.client.core.waiting(.login).isEmpty)
        later.client.destroy()
    }

    @Test func `A login finds room in a full queue, and is not dropped for other events`() async throws {
        let test = try Client { $0.queueSize = 3 }
        try await test.client.initializeAnonymously()
        test.server.respond { _ throws(HoldfastError) in throw .unreachable("it is down") }
        for number in 0..<4 { test.client.track(goalID: "goal\(number)") }
        #expect(test.client.waitingEvents == 3)
        try await test.client.login(userID: "ada")
        for number in 0..<4 { test.client.track(goalID: "later\(number)") }
        #expect(test.client.waitingEvents == 4)
        test.server.respond { call throws(HoldfastError) in Client.usual(call) }
        try await test.client.flush()
        #expect(test.server.calls("/v1/logins").last?.json.arrayValue?.first?["user_id"] == "ada")
        #expect(test.client.waitingEvents == 0)
        test.client.destroy()
    }

    @Test func `An event that the server takes only later is joined, too`() async throws {
        let test = try Client()
        test.server.respond { call throws(HoldfastError) in
            guard call.path == "/v1/exposures" else { return Client.usual(call) }
            return .json(
                #"{"results":[{"index":0,"status":"refused","retriable":true,"problem":{"status":404,"detail":"gone"}}]}"#
            )
        }
        try await test.client.initializeAnonymously()
        _ = test.client.stringVariation(flagKey: "checkout", defaultValue: "")
        try await test.client.login(userID: "ada")
        await #expect(throws: HoldfastError.self) { try await test.client.flush() }
        let early = test.server.calls("/v1/logins").count
        #expect(early > 0 && test.client.core.waiting(.login).count == 1)
        test.server.respond { call throws(HoldfastError) in Client.usual(call) }
        try await test.client.flush()
        #expect(test.server.calls("/v1/logins").count > early)
        #expect(test.client.waitingEvents == 0)
        test.client.destroy()
    }

    @Test func `With a token of scope client the server joins the two, and has the counts of evaluations`()
        async throws
    {
        let directory = try TemporaryDirectory()
        let (app, admin) = ("app-secret-0123456789", "admin-secret-0123456789")
        let tokens = directory.path("tokens")
        #expect(
            FileManager.default.createFile(
                atPath: tokens, contents: Data("client app \(app)\nadmin on-call \(admin)\n".utf8),
                attributes: [.posixPermissions: 0o600]))
        let server = try await RealServer(tokens: tokens, adminToken: admin)
        try await server.putDatafile(revision: 1)
        let client = try server.client(in: directory) { $0.token = app }
        let germany: [String: UserAttributeValue] = ["country": "de"]
        try await client.initializeAnonymously(attributes: germany, timeout: .seconds(60))
        let shown = client.stringVariation(flagKey: "checkout", defaultValue: "")
        client.track(goalID: "purchase", value: 5)
        try await client.login(userID: "ada", attributes: germany, timeout: .seconds(60))
        #expect(client.stringVariation(flagKey: "checkout", defaultValue: "") == shown)
        _ = client.boolVariation(flagKey: "missing", defaultValue: false)
        try await client.flush()
        #expect(try await server.exposures().map { $0["user_id"] } == ["ada"])
        #expect(try await server.goalEvents().map { $0["user_id"] } == ["ada"])
        let metrics = try await server.request("GET", "/metrics")
        for line in [
            #"sdk_key="shop",flag="checkout",variation="\#(shown)",reason="bucketed"} 1"#,
            #"sdk_key="shop",flag="",variation="",reason="flag_not_found"} 1"#,
        ] {
            #expect(metrics.contains("holdfast_client_evaluations_total{" + line))
        }
        client.destroy()
    }

    @Test func `A device keeps its own profile on the server with the token of an app`() async throws {
        let directory = try TemporaryDirectory()
        let (app, admin) = ("app-secret-0123456789", "admin-secret-0123456789")
        let tokens = directory.path("tokens")
        #expect(
            FileManager.default.createFile(
                atPath: tokens, contents: Data("client app \(app)\nadmin on-call \(admin)\n".utf8),
                attributes: [.posixPermissions: 0o600]))
        let server = try await RealServer(tokens: tokens, adminToken: admin)
        let client = try server.client(in: directory) { $0.token = app }
        let id = client.anonymousUserID
        let profiles = UserProfileService(client: client)
        profiles.save(userProfile: UserProfile(userID: id, experimentBucketMap: ["7001": "70012"]))
        // Another user's save is not stored, and delays nothing.
        profiles.save(userProfile: UserProfile(userID: "eve", experimentBucketMap: ["7001": "70012"]))
        await #expect(throws: HoldfastError.self) { try await client.flush() }
        #expect(client.waitingEvents == 1)
        let stored = try await server.request("GET", "/v1/profiles")
        #expect(stored.contains(id) && !stored.contains("eve"))
        // After the app was deleted, the id is all that is left of it.
        let other = try server.client(in: TemporaryDirectory()) { $0.token = app }
        let again = UserProfileService(client: other)
        try await again.load(userIDs: [id])
        #expect(again.lookup(userID: id)?.experimentBucketMap == ["7001": "70012"])
        await #expect(throws: HoldfastError.self) { try await again.load(userIDs: ["ada"]) }
        for client in [client, other] { client.destroy() }
    }

    @Test func `An app replaces its token`() async throws {
        let test = try Client { $0.token = "app" }
        try await test.client.initialize(user: HoldfastUser(id: "ada"))
        try test.client.setToken("signed.for.ada")
        #expect(throws: HoldfastError.self) { try test.client.setToken("two words") }
        try await test.client.fetchEvaluations()
        #expect(
            test.server.calls("/v1/evaluations").map { $0.fields["Authorization"] } == [
                "Bearer app", "Bearer signed.for.ada",
            ])
        test.client.destroy()
    }

    @Test func `What was shown before the login is shown after it, unless the account has seen another variation`()
        async throws
    {
        let server = try await RealServer()
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

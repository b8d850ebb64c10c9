import Foundation
import HoldfastClient
import Testing

// The code of the article Flags; ArticleTests compares the two.

struct FlagsExample {
    @Test func `An app asks for a flag and reports a goal`() async throws {
        let server = try await RealServer()
        try await server.putDatafile(revision: 1, controlEnd: 0)
        let endpoint = try server.endpoint
        let folder = try TemporaryDirectory()
        let (directory, token) = (folder.url, String?.none)

        var configuration = HoldfastConfiguration(endpoint: endpoint, token: token, directory: directory)
        configuration.appVersion = "1.2"
        configuration.pollingInterval = .seconds(120)
        let client = try HoldfastClient(configuration: configuration)
        let user = HoldfastUser(id: "ada", attributes: ["country": "de"])
        let freshness = try await client.initialize(user: user, timeout: .seconds(60))
        if let error = freshness.error { print("the flags are those of the last run: \(error)") }

        #expect(freshness == .server)
        #expect(client.stringVariation(flagKey: "checkout", defaultValue: "control") == "new")

        if client.stringVariation(flagKey: "checkout", defaultValue: "control") == "new" {
            let columns = client.intVariation(flagKey: "checkout", variable: "columns", defaultValue: 1)
            print("the new checkout with \(columns) columns")
        }
        client.track(goalID: "purchase", value: 49.5)

        if let details = client.evaluationDetails(flagKey: "checkout") {
            print(details.variationKey ?? "none", details.reason, details.flagVersion)
        }
        for count in client.evaluationCounts() { print(count.flagKey, count.reason, count.count) }

        client.updateUserAttributes(["country": "de", "language": "en"])
        try await client.fetchEvaluations(timeout: .seconds(60))

        let listener = client.addMainActorUpdateListener { flagKeys in
            print("changed: \(flagKeys.sorted())")
        }
        client.addFetchListener { error in
            if let error { print("polling failed: \(error.localizedDescription)") }
        }
        client.removeUpdateListener(listener)
        client.clearUpdateListeners()

        client.enterBackground()
        client.enterForeground()

        try await client.flush()
        client.destroy()
        #expect(try await server.goalEvents().count == 1)
        #expect(try await server.exposures().count == 1)
    }

    @Test func `An app brings values, and a tester chooses others`() async throws {
        let server = StubServer { _ throws(HoldfastError) in throw .unreachable("down") }
        let folder = try TemporaryDirectory()
        var configuration = HoldfastConfiguration(endpoint: Client.endpoint, directory: folder.url)
        configuration.bootstrap = ["checkout": "control", "page_size": 20]
        let client = try HoldfastClient(configuration: configuration, transport: server, clock: ManualClock())
        try client.start(user: HoldfastUser(id: "ada"))
        #expect(client.intVariation(flagKey: "page_size", defaultValue: 10) == 20)

        client.setOverride("new", flagKey: "checkout")
        for state in client.flagStates {
            print(
                state.details.flagKey, state.details.variationValue ?? .null, state.isOverridden, state.details.reason)
        }
        client.removeOverrides()
        client.destroy()
    }

    @Test func `A second user of the same app starts after the first`() async throws {
        let server = StubServer { call throws(HoldfastError) in Client.usual(call) }
        let folder = try TemporaryDirectory()
        var configuration = HoldfastConfiguration(endpoint: Client.endpoint, directory: folder.url)
        configuration.listensToChanges = false
        let client = try HoldfastClient(configuration: configuration, transport: server, clock: ManualClock())
        try await client.initializeAnonymously()
        try await client.login(userID: "ada")
        try await client.logout()

        try await client.flush()
        try await client.initialize(user: HoldfastUser(id: "bob"))
        #expect(client.currentUser?.id == "bob")
        client.destroy()
    }
}

import Foundation
import HoldfastClient
import Testing

// What the article Flags shows; ArticleTests holds one to the other.

struct FlagsExample {
    @Test func `An app asks for a flag and reports a goal`() async throws {
        let server = try RealServer()
        try await server.putDatafile(revision: 1, controlEnd: 0)
        let temporary = try TemporaryDirectory()
        let (endpoint, token, directory) = (try server.endpoint, "a-token", temporary.url)

        var configuration = HoldfastConfiguration(endpoint: endpoint, token: token, directory: directory)
        configuration.pollingInterval = .seconds(120)
        let client = try HoldfastClient(configuration: configuration)
        try await client.initialize(user: HoldfastUser(id: "ada", attributes: ["country": "de"]), timeout: .seconds(3))

        try await client.fetchEvaluations()
        #expect(client.isEnabled(flagKey: "checkout"))

        if client.isEnabled(flagKey: "checkout") {
            let columns = client.intVariation(flagKey: "checkout", variable: "columns", defaultValue: 1)
            print("the new checkout with \(columns) columns")
        }
        client.track(goalID: "purchase", value: 49.5)

        let listener = client.addUpdateListener { keys in
            print("changed: \(keys.sorted())")
        }
        client.enterBackground()
        client.enterForeground()
        listener.cancel()

        try await client.flush()
        client.destroy()
        #expect(try await server.goalEvents().count == 1)
    }
}

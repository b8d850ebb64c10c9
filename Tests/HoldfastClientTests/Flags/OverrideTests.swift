import Foundation
import Testing

@testable import HoldfastClient

/// Values that do not come from the server: those that an app brings, and those that a tester chooses.
@Suite struct OverrideTests {
    private static let ada = HoldfastUser(id: "ada")
    private static let down = StubServer { _ throws(HoldfastError) in throw .unreachable("down") }

    // MARK: What an app brings

    @Test func `Without server and cache a flag has the app's value, and nothing is reported but a default`()
        async throws
    {
        let test = try Client(server: Self.down) {
            $0.bootstrap = ["checkout": "new", "limit": 7, "dark": false]
            $0.reportsExposures = true
        }
        let client = test.client
        #expect(try await client.initialize(user: Self.ada) == .nothing(.unreachable("down")))
        #expect(client.stringVariation(flagKey: "checkout", defaultValue: "old") == "new")
        #expect(client.intVariation(flagKey: "limit", defaultValue: 1) == 7)
        #expect(!client.boolVariation(flagKey: "dark", defaultValue: true))
        #expect(!client.isEnabled(flagKey: "dark") && client.isEnabled(flagKey: "checkout"))
        #expect(client.stringVariation(flagKey: "other", defaultValue: "old") == "old")
        #expect(client.evaluationDetails(flagKey: "checkout")?.reason == .bootstrap)
        #expect(Set(client.evaluationCounts().map(\.reason)) == [.notFetched])
        #expect(client.waitingEvents == 0)
    }

    @Test func `What was fetched replaces all values of the app, and is used in later runs instead`() async throws {
        let directory = try TemporaryDirectory()
        let bootstrap: [String: HoldfastValue] = ["checkout": "bundled", "gone": true]
        let test = try Client(directory: directory) { $0.bootstrap = bootstrap }
        try test.client.start(user: Self.ada)
        let updates = test.client.updates()
        #expect(test.client.stringVariation(flagKey: "checkout", defaultValue: "") == "bundled")
        for await changed in updates {
            #expect(changed == ["checkout", "banner", "gone"])
            break
        }
        #expect(test.client.stringVariation(flagKey: "checkout", defaultValue: "") == "new")
        #expect(!test.client.boolVariation(flagKey: "gone", defaultValue: false))
        test.client.destroy()

        let later = try Client(directory: directory, server: Self.down) { $0.bootstrap = bootstrap }
        #expect(try await later.client.initialize(user: Self.ada) == .cache(.unreachable("down")))
        #expect(later.client.stringVariation(flagKey: "checkout", defaultValue: "") == "new")
    }

    @Test func `The values of a run can be the app's values of the next`() async throws {
        let test = try Client()
        try await test.client.initialize(user: Self.ada)
        let values = test.client.flagValues
        #expect(values == ["checkout": "new"])
        let data = try JSONEncoder().encode(values)
        #expect(try JSONDecoder().decode([String: HoldfastValue].self, from: data) == values)
    }

    // MARK: What a tester chooses

    @Test func `An override wins over the server, is announced, and is neither reported nor counted`() async throws {
        let test = try Client()
        let client = test.client
        try await client.initialize(user: Self.ada)
        let changes = Log<Set<String>>()
        client.addUpdateListener { changes.add($0) }
        client.setOverride("control", flagKey: "checkout")
        #expect(client.stringVariation(flagKey: "checkout", defaultValue: "") == "control")
        #expect(client.intVariation(flagKey: "checkout", variable: "columns", defaultValue: 1) == 3)
        #expect(client.evaluationDetails(flagKey: "checkout")?.reason == .localOverride)
        #expect(client.waitingEvents == 0 && client.evaluationCounts().isEmpty)

        client.setOverride(nil, flagKey: "checkout")
        #expect(client.stringVariation(flagKey: "checkout", defaultValue: "") == "new")
        #expect(client.waitingEvents == 1)
        #expect(changes.all == [["checkout"], ["checkout"]])
    }

    @Test func `Overrides stay over fetches, restarts and users, until all are removed`() async throws {
        let directory = try TemporaryDirectory()
        let test = try Client(directory: directory)
        try await test.client.initialize(user: Self.ada)
        test.client.setOverride(false, flagKey: "checkout")
        test.client.setOverride(["rows": 2], flagKey: "unknown")
        try await test.client.fetchEvaluations()
        #expect(!test.client.boolVariation(flagKey: "checkout", defaultValue: true))
        test.client.destroy()

        let later = try Client(directory: directory, server: Self.down)
        try later.client.start(user: HoldfastUser(id: "bob"))
        #expect(!later.client.boolVariation(flagKey: "checkout", defaultValue: true))
        #expect(later.client.jsonVariation(flagKey: "unknown", defaultValue: HoldfastValue.null) == ["rows": 2])
        later.client.removeOverrides()
        #expect(later.client.boolVariation(flagKey: "checkout", defaultValue: true))
        #expect(later.client.evaluationDetails(flagKey: "unknown") == nil)
    }

    @Test func `The list for a debug menu has each flag, with the value that it would have`() async throws {
        let test = try Client()
        try await test.client.initialize(user: Self.ada)
        test.client.setOverride("control", flagKey: "checkout")
        test.client.setOverride(1, flagKey: "added")
        let states = test.client.flagStates
        #expect(states.map(\.details.flagKey) == ["added", "banner", "checkout"])
        #expect(states.map(\.isOverridden) == [true, false, true])
        #expect(states.map(\.details.variationValue) == [1, nil, "control"])
        #expect(states.map(\.valueWithoutOverride) == [nil, nil, "new"])
    }

    // MARK: Users

    @Test func `The flags of the last users are kept, and no more`() async throws {
        let directory = try TemporaryDirectory()
        let server = StubServer { call throws(HoldfastError) in
            let user = call.json["user_id"]?.stringValue ?? ""
            return .json(Client.evaluations().replacing("\"ada\"", with: "\"\(user)\""))
        }
        let test = try Client(directory: directory, server: server) { $0.cachedUsers = 2 }
        for id in ["ada", "bob", "ada", "eve"] { try await test.client.initialize(user: HoldfastUser(id: id)) }
        test.client.destroy()

        let later = try Client(directory: directory, server: Self.down) { $0.cachedUsers = 2 }
        for (id, isKept) in [("ada", true), ("bob", false), ("eve", true)] {
            let freshness = try await later.client.initialize(user: HoldfastUser(id: id))
            #expect(freshness == (isKept ? .cache(.unreachable("down")) : .nothing(.unreachable("down"))), "\(id)")
        }
    }
}

import Foundation
import Testing

@testable import HoldfastClient

/// What ends with a call, a service or the client, and what outlives it.
@Suite(.timeLimit(.minutes(5))) struct LifetimeTests {
    @Test(arguments: [false, true])
    func `A flush that is cancelled ends, and delivery goes on`(inBackgroundTask: Bool) async throws {
        let gate = Gate()
        let test = try Client(
            server: StubServer { call throws(HoldfastError) in
                if call.path == "/v1/events" { await gate.passed() }
                return Client.usual(call)
            })
        try await test.client.initialize(user: HoldfastUser(id: "ada"))
        test.client.track(goalID: "purchase")
        let flush = Task {
            if inBackgroundTask { try await test.client.refreshInBackground() } else { try await test.client.flush() }
        }
        await test.server.untilCalled("/v1/events")
        flush.cancel()
        await #expect(throws: HoldfastError.cancelled) { try await flush.value }
        gate.open()
        try await test.client.flush()
        #expect(test.server.calls("/v1/events").count == 1)
        #expect(test.client.waitingEvents == 0)
    }

    @Test func `Streams end with the client`() async throws {
        let test = try Client()
        let service = AttributeService(client: test.client)
        let (updates, deliveries, outcomes) = (test.client.updates(), test.client.deliveries(), service.outcomes())
        try await test.client.initialize(user: HoldfastUser(id: "ada"))
        let reading = Task {
            for await _ in updates {}
            for await _ in deliveries {}
            for await _ in outcomes {}
            // A stream of a client that is destroyed already.
            for await _ in test.client.updates() {}
            for await _ in test.client.deliveries() {}
        }
        test.client.destroy()
        await reading.value
    }

    @Test func `A stream of remote values ends with the client, and still has the last value`() async throws {
        enum Key: String, RemoteKey {
            case title = "checkout.title"
            var valueType: any RemoteValue.Type { Title.self }
        }
        struct Title: StringInitializableRemoteValue {
            static let `default` = Title(name: "")
            let name: String
            init(name: String) { self.name = name }
        }
        let test = try Client()
        try await test.client.initialize(user: HoldfastUser(id: "ada"))
        let service = RemoteConfigService(keeper: HoldfastRemoteConfigKeeper(client: test.client))
        let before = service.remoteValues(for: Key.title, as: Title.self)
        test.client.destroy()
        for values in [before, service.remoteValues(for: Key.title, as: Title.self)] {
            var names: [String] = []
            for await value in values { names.append(value.name) }
            #expect(names == ["Pay"])
        }
    }

    @Test func `A client that was destroyed is not kept by listeners that own it`() async throws {
        weak var released: HoldfastClient?
        do {
            let test = try Client()
            let client = test.client
            client.addUpdateListener { _ in client.track(goalID: "seen") }
            client.addMainActorUpdateListener { _ in client.track(goalID: "seen") }
            client.addFetchListener { _ in client.track(goalID: "seen") }
            released = client
            client.destroy()
        }
        #expect(released == nil)
    }

    @Test func `A service that is released leaves no task behind, and its cache to the next one`() async throws {
        let server = StubServer { call throws(HoldfastError) in
            guard call.path == "/v1/profiles/lookup" else { return Client.usual(call) }
            return .json(#"{"profiles":[{"user_id":"ada","experiment_bucket_map":{"1":{"variation_id":"a"}}}]}"#)
        }
        let test = try Client(server: server) { $0.flushInterval = .seconds(100) }
        var service: AttributeService? = AttributeService(client: test.client)
        try service?.update(attributes: ["age": 40], userID: "ada")
        var profiles: UserProfileService? = UserProfileService(client: test.client)
        profiles?.save(userProfile: UserProfile(userID: "ada", experimentBucketMap: ["1": "a"]))
        await test.clock.untilSleeping(for: .seconds(30), count: 2)
        try await test.client.flush()
        service = nil
        profiles = nil
        // What was sent of attributes belongs to the client.
        #expect(test.clock.sleeping.count { $0 == .seconds(30) } == 1)
        #expect(AttributeService(client: test.client).attributes(userID: "ada") == ["age": 40])
        let next = UserProfileService(client: test.client)
        #expect(next.lookup(userID: "ada")?.experimentBucketMap == ["1": "a"])
    }

    @Test func `Caches are written when the app enters the background, because it may be ended there`() async throws {
        let test = try Client()
        let service = AttributeService(client: test.client)
        try service.update(attributes: ["age": 40], userID: "ada")
        try await test.client.flush()
        test.client.enterBackground()
        // The directory as the next run finds it.
        let directory = try TemporaryDirectory()
        let copy = directory.url.appending(path: "copy")
        try FileManager.default.copyItem(at: test.directory.url, to: copy)
        let next = try HoldfastClient(
            configuration: HoldfastConfiguration(endpoint: Client.endpoint, directory: copy), transport: test.server,
            clock: test.clock)
        #expect(AttributeService(client: next).attributes(userID: "ada") == ["age": 40])
    }

    @Test func `A request ends when its task is cancelled, however early`() async throws {
        let transport = URLSessionTransport()
        let url = try #require(URL(string: "http://127.0.0.1:9"))
        await withTaskGroup(of: Void.self) { group in
            for _ in 0..<300 {
                group.addTask {
                    await #expect(throws: HoldfastError.self) {
                        _ = try await transport.open(TransportRequest(method: "GET", url: url, timeout: .seconds(60)))
                    }
                }
            }
            group.cancelAll()
        }
        transport.close()
        await #expect(throws: HoldfastError.destroyed) {
            _ = try await transport.open(TransportRequest(method: "GET", url: url, timeout: .seconds(60)))
        }
    }
}

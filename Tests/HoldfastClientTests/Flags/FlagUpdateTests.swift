import Dispatch
import Foundation
import Synchronization
import Testing

@testable import HoldfastClient

/// How flags reach the app: requests, the cache, listeners and the stream of changes.
@Suite struct FlagUpdateTests {
    private static let ada = HoldfastUser(id: "ada", attributes: ["country": "de"])

    @Test func `A request names the user, the project, the token and what is known`() async throws {
        let test = try Client {
            $0.sdkKey = "shop"
            $0.token = "secret"
        }
        try await test.client.initialize(user: Self.ada)
        try await test.client.fetchEvaluations()
        let calls = test.server.calls("/v1/evaluations")
        let body = try JSONDecoder().decode(HoldfastValue.self, from: Data(calls[0].body.utf8))
        #expect(body == ["user_id": "ada", "attributes": ["country": "de"], "sdk_key": "shop"])
        #expect(calls[0].fields["Authorization"] == "Bearer secret")
        #expect(calls.map { $0.fields["If-None-Match"] } == [nil, "\"1\""])
        #expect(test.client.isEnabled(flagKey: "checkout", defaultValue: false))
    }

    @Test func `The cache is used while the server is late, and the late response is used afterwards`() async throws {
        let directory = try TemporaryDirectory()
        let first = try Client(directory: directory)
        try await first.client.initialize(user: Self.ada)
        first.client.destroy()

        let gate = Gate()
        let second = try Client(
            directory: directory,
            server: StubServer { call throws(HoldfastError) in
                await gate.passed()
                return .json(Client.evaluations(revision: "2", enabled: false), ["etag": "\"2\""])
            })
        async let freshness = second.client.initialize(user: Self.ada, timeout: .seconds(3))
        await second.clock.untilSleeping(for: .seconds(3))
        second.clock.advance(by: .seconds(3))
        #expect(try await freshness == .cache(.timedOut))
        #expect(second.client.isEnabled(flagKey: "checkout", defaultValue: false))
        var updates = second.client.updates().makeAsyncIterator()
        gate.open()
        #expect(await updates.next() == ["checkout"])
        #expect(second.client.isEnabled(flagKey: "checkout", defaultValue: true) == false)
    }

    @Test(arguments: [nil, Evaluations.Content.currentFormat])
    func `The cache of another release is used, but fetched anew even if nothing has changed`(format: Int?) async throws
    {
        let directory = try TemporaryDirectory()
        var content = try JSONDecoder().decode(Evaluations.Content.self, from: Data(Client.evaluations().utf8))
        content.entityTag = "\"1\""
        content.format = format
        try DiskCache(directory: directory.url).write("evaluations.cache", content)
        let test = try Client(directory: directory)
        try test.client.start(user: Self.ada)
        #expect(test.client.isEnabled(flagKey: "checkout"))
        await test.server.untilCalled("/v1/evaluations")
        #expect(test.server.calls("/v1/evaluations")[0].fields["If-None-Match"] == (format == nil ? nil : "\"1\""))
    }

    @Test func `What is cached of one user is not shown to another`() async throws {
        let directory = try TemporaryDirectory()
        let first = try Client(directory: directory)
        try await first.client.initialize(user: Self.ada)
        first.client.destroy()
        let down = StubServer { _ throws(HoldfastError) in throw .unreachable("it is down") }
        let second = try Client(directory: directory, server: down)
        #expect(
            try await second.client.initialize(user: HoldfastUser(id: "bob")) == .nothing(.unreachable("it is down")))
        #expect(second.client.isEnabled(flagKey: "checkout", defaultValue: false) == false)
        #expect(try await second.client.initialize(user: Self.ada) == .cache(.unreachable("it is down")))
        #expect(second.client.isEnabled(flagKey: "checkout", defaultValue: false))
    }

    @Test func `Listeners get the keys of changed flags, and are not called without a change`() async throws {
        let test = try Client()
        let told = Mutex<[Set<String>]>([])
        let token = test.client.addUpdateListener { keys in told.withLock { $0.append(keys) } }
        try await test.client.initialize(user: Self.ada)
        try await test.client.fetchEvaluations()
        test.server.respond { _ throws(HoldfastError) in
            .json(Client.evaluations(revision: "2", columns: 4), ["etag": "\"2\""])
        }
        try await test.client.fetchEvaluations()
        token.cancel()
        test.server.respond { _ throws(HoldfastError) in .json(Client.evaluations(revision: "3", columns: 5)) }
        try await test.client.fetchEvaluations()
        #expect(told.withLock { $0 } == [["checkout", "banner"], ["checkout"]])
    }

    @Test func `Listeners are notified of another user while the server is down, and the error is known`() async throws
    {
        let test = try Client()
        try await test.client.initialize(user: Self.ada)
        #expect(test.client.fetchError == nil)
        let told = Mutex<[Set<String>]>([])
        test.client.addUpdateListener { keys in told.withLock { $0.append(keys) } }
        test.server.respond { _ throws(HoldfastError) in throw .unreachable("it is down") }
        #expect(try await test.client.initialize(user: HoldfastUser(id: "bob")) == .nothing(.unreachable("it is down")))
        #expect(told.withLock { $0 } == [["checkout", "banner"]])
        #expect(test.client.fetchError == .unreachable("it is down"))
        // The cache has the former user still.
        #expect(try await test.client.initialize(user: Self.ada) == .cache(.unreachable("it is down")))
        #expect(told.withLock { $0 } == [["checkout", "banner"], ["checkout", "banner"]])
        test.server.respond { call throws(HoldfastError) in Client.usual(call) }
        try await test.client.fetchEvaluations()
        #expect(test.client.fetchError == nil)
        #expect(told.withLock { $0.count } == 2)
    }

    @Test func `Listeners hear of a new off value`() async throws {
        let columns = Mutex(3)
        let test = try Client(
            server: StubServer { _ throws(HoldfastError) in
                .json(
                    #"""
                    {"user_id":"ada","revision":"1","evaluations":[{"flag_key":"columns","variation_key":null,"variation_id":null,
                     "experiment_id":null,"enabled":false,"type":"integer","value":\#(columns.withLock { $0 }),"rule_key":null,
                     "reason":"disabled","source":"none"}]}
                    """#)
            })
        try await test.client.initialize(user: Self.ada)
        let told = Log<Set<String>>()
        test.client.addUpdateListener { told.add($0) }
        columns.withLock { $0 = 4 }
        try await test.client.fetchEvaluations()
        #expect(test.client.intVariation(flagKey: "columns", defaultValue: 1) == 4)
        #expect(told.all == [["columns"]])
        test.client.destroy()
    }

    @Test func `New attributes fetch the flags at once`() async throws {
        let test = try Client()
        try await test.client.initialize(user: Self.ada)
        test.client.updateUserAttributes(["country": "fr"])
        await test.server.untilCalled("/v1/evaluations", count: 2)
        #expect(test.server.calls("/v1/evaluations")[1].body.contains(#""country":"fr""#))
        #expect(test.client.currentUser?.attributes == ["country": "fr"])
    }

    @Test func `A change on the server is fetched at once, also after the connection failed`() async throws {
        let server = StubServer { call throws(HoldfastError) in
            guard call.path == "/v1/changes" else { return Client.usual(call) }
            return StubServer.Response(body: "event: datafile\ndata: {\"sdk_key\":\"shop\",\"revision\":\"2\"}\n\n")
        }
        let test = try Client(server: server) {
            $0.listensToChanges = true
            $0.sdkKey = "a+b"
        }
        try await test.client.initialize(user: Self.ada)
        await server.untilCalled("/v1/changes", count: 1)
        #expect(server.calls("/v1/changes")[0].query == "sdk_key=a%2Bb")
        await server.untilCalled("/v1/evaluations", count: 2)
        // The stream has ended; the back-off is between half a second and a second, and then longer.
        for longest in [1, 2, 4] {
            await test.clock.untilSleeping(in: .seconds(Double(longest) / 2)...(.seconds(longest)))
            test.clock.advance(by: .seconds(longest))
        }
        await server.untilCalled("/v1/changes", count: 4)
        await server.untilCalled("/v1/evaluations", count: 5)
        test.client.enterBackground()
        test.client.destroy()
    }

    @Test func `The first fetch may take five seconds by default, a later one thirty`() async throws {
        let gate = Gate()
        let test = try Client(
            server: StubServer { call throws(HoldfastError) in
                await gate.passed()
                return Client.usual(call)
            })
        async let freshness = test.client.initialize(user: Self.ada)
        await test.clock.untilSleeping(for: .seconds(5))
        test.clock.advance(by: .seconds(5))
        #expect(try await freshness == .nothing(.timedOut))
        let fetched = Task { try await test.client.fetchEvaluations() }
        await test.clock.untilSleeping(for: .seconds(30))
        gate.open()
        try await fetched.value
        #expect(test.client.isEnabled(flagKey: "checkout"))
        test.client.destroy()
    }

    @Test func `A fetch takes no longer than it may`() async throws {
        let gate = Gate()
        let test = try Client()
        try await test.client.initialize(user: Self.ada)
        test.server.respond { call throws(HoldfastError) in
            await gate.passed()
            return Client.usual(call)
        }
        let fetched = Task { try await test.client.fetchEvaluations(timeout: .seconds(7)) }
        await test.clock.untilSleeping(for: .seconds(7))
        test.clock.advance(by: .seconds(7))
        await #expect(throws: HoldfastError.timedOut) { try await fetched.value }
        gate.open()
    }

    @Test func `The flags are the current user's, in whichever order threads change the user`() throws {
        let directory = try TemporaryDirectory()
        let content = try JSONDecoder().decode(Evaluations.Content.self, from: Data(Client.evaluations().utf8))
        try DiskCache(directory: directory.url).write("evaluations.cache", content)
        let test = try Client(directory: directory)
        let flags = test.client.flags
        let users = ["ada", "bob"].map { HoldfastUser(id: $0) }
        for _ in 0..<500 {
            _ = flags.begin(users[1])
            DispatchQueue.concurrentPerform(iterations: 2) { _ = flags.begin(users[$0]) }
            let isCached = flags.user?.id == "ada"
            #expect((flags.evaluations != nil) == isCached)
        }
    }

    @Test func `A login keeps only the flags of the user who logs in`() async throws {
        let test = try Client()
        try await test.client.initialize(user: Self.ada)
        // Another thread has changed the user since the login began.
        _ = test.client.flags.begin(HoldfastUser(id: "bob"), after: test.client.anonymousUserID)
        #expect(test.client.evaluationDetails(flagKey: "checkout") == nil)
        test.client.destroy()
    }

    @Test func `The error of a fetch for a former user is not the present user's`() async throws {
        let gates = ["ada": Gate(), "bob": Gate()]
        let test = try Client(
            server: StubServer { call throws(HoldfastError) in
                await gates[call.json["user_id"]?.stringValue ?? ""]?.passed()
                throw .unreachable("it is down")
            })
        try test.client.start(user: Self.ada)
        await test.server.untilCalled("/v1/evaluations")
        try test.client.start(user: HoldfastUser(id: "bob"))
        gates["ada"]?.open()
        await test.server.untilCalled("/v1/evaluations", count: 2)
        #expect(test.client.fetchError == nil)
        gates["bob"]?.open()
        await #expect(throws: HoldfastError.unreachable("it is down")) { try await test.client.fetchEvaluations() }
        #expect(test.client.fetchError == .unreachable("it is down"))
    }
}

import Foundation
import Synchronization
import Testing

@testable import HoldfastClient

@Suite struct FlagTests {
    private static let ada = HoldfastUser(id: "ada", attributes: ["country": "de"])

    @Test func `A variation's value has the type that is asked for, or the default is returned`() async throws {
        func flag(_ key: String, _ variation: String, _ variables: String = "") -> String {
            #"{"flag_key":"\#(key)","variation_key":"\#(variation)","variation_id":"1","experiment_id":null,"enabled":true,"variables":{\#(variables)},"rule_key":null,"source":"none"}"#
        }
        let flags = [
            flag("yes", "true"), flag("off", "off"), flag("ten", "10"), flag("half", "0.5"), flag("text", "new"),
            flag("json", #"{\"dark\":true}"#), flag("typed", "large", #""value":{"dark":true},"columns":3"#),
            flag("number", "many", #""value":7,"other":8"#),
        ]
        let test = try Client(
            server: StubServer { _ throws(HoldfastError) in
                .json(#"{"user_id":"ada","revision":"12","evaluations":[\#(flags.joined(separator: ","))]}"#)
            })
        let client = test.client
        #expect(client.boolVariation(flagKey: "yes", defaultValue: false) == false)
        try await client.initialize(user: Self.ada)
        #expect(client.boolVariation(flagKey: "yes", defaultValue: false))
        #expect(!client.boolVariation(flagKey: "off", defaultValue: true))
        #expect(client.boolVariation(flagKey: "text", defaultValue: true))
        #expect(client.stringVariation(flagKey: "text", defaultValue: "") == "new")
        #expect(client.stringVariation(flagKey: "yes", defaultValue: "") == "true")
        #expect(client.intVariation(flagKey: "ten", defaultValue: 1) == 10)
        #expect(client.intVariation(flagKey: "half", defaultValue: 1) == 1)
        #expect(client.doubleVariation(flagKey: "half", defaultValue: 1) == 0.5)
        #expect(client.doubleVariation(flagKey: "ten", defaultValue: 1) == 10)
        // A second number changes nothing.
        #expect(client.intVariation(flagKey: "number", defaultValue: 1) == 7)
        #expect(client.stringVariation(flagKey: "number", defaultValue: "") == "7")
        struct Theme: Decodable, Equatable { var dark: Bool }
        #expect(client.jsonVariation(flagKey: "json", defaultValue: Theme(dark: false)) == Theme(dark: true))
        #expect(client.jsonVariation(flagKey: "typed", defaultValue: ["dark": false]) == ["dark": true])
        #expect(client.jsonVariation(flagKey: "typed", defaultValue: HoldfastValue.null) == ["dark": true])
        #expect(client.jsonVariation(flagKey: "text", defaultValue: Theme(dark: true)) == Theme(dark: true))
        #expect(client.stringVariation(flagKey: "nothing", defaultValue: "default") == "default")
    }

    @Test func `A flag without a variation has the value that the server gives everybody else, or the default`()
        async throws
    {
        func flag(_ key: String, _ members: String) -> String {
            #"{"flag_key":"\#(key)","variation_key":null,"variation_id":null,"experiment_id":null,"enabled":false,\#(members),"rule_key":null,"source":"none"}"#
        }
        let flags = [
            flag("off", #""type":"boolean","value":false,"variables":{"value":false}"#),
            flag("limit", #""type":"integer","value":7,"variables":{"value":7}"#),
            flag("experiment", #""type":"string","value":null,"variables":{"value":""}"#),
            flag("several", #""type":null,"value":{"a":1},"variables":{"a":1}"#),
        ]
        let test = try Client(
            server: StubServer { _ throws(HoldfastError) in
                .json(#"{"user_id":"ada","revision":"1","evaluations":[\#(flags.joined(separator: ","))]}"#)
            })
        let client = test.client
        try await client.initialize(user: Self.ada)
        #expect(!client.boolVariation(flagKey: "off", defaultValue: true))
        #expect(client.intVariation(flagKey: "limit", defaultValue: 1) == 7)
        #expect(client.stringVariation(flagKey: "experiment", defaultValue: "mine") == "mine")
        #expect(client.jsonVariation(flagKey: "several", defaultValue: HoldfastValue.null) == .null)
        #expect(client.evaluationDetails(flagKey: "off")?.variationValue == false)
        #expect(client.evaluationDetails(flagKey: "off")?.reason == .noRule)
        client.destroy()
    }

    @Test func `A flag is on or off, and its variables have values`() async throws {
        let test = try Client()
        let client = test.client
        #expect(!client.isEnabled(flagKey: "checkout"))
        #expect(try await client.initialize(user: Self.ada) == .server)
        #expect(client.isEnabled(flagKey: "checkout"))
        #expect(!client.isEnabled(flagKey: "banner", defaultValue: true))
        #expect(client.isEnabled(flagKey: "nothing", defaultValue: true))
        #expect(client.boolVariation(flagKey: "checkout", variable: "eager", defaultValue: false))
        #expect(client.boolVariation(flagKey: "checkout", variable: "columns", defaultValue: true))
        #expect(client.stringVariation(flagKey: "checkout", defaultValue: "none") == "new")
        #expect(client.stringVariation(flagKey: "checkout", variable: "title", defaultValue: "none") == "Pay")
        #expect(client.stringVariation(flagKey: "banner", defaultValue: "none") == "none")
        #expect(client.intVariation(flagKey: "checkout", variable: "columns", defaultValue: 1) == 3)
        #expect(client.intVariation(flagKey: "checkout", variable: "title", defaultValue: 1) == 1)
        #expect(client.intVariation(flagKey: "banner", variable: "limit", defaultValue: 1) == 9)
        #expect(client.doubleVariation(flagKey: "banner", variable: "ratio", defaultValue: 1) == 0.5)
        #expect(
            client.jsonVariation(flagKey: "checkout", variable: "theme", defaultValue: ["dark": false]) == [
                "dark": true
            ])
        #expect(client.evaluationDetails(flagKey: "banner")?.variables == ["ratio": 0.5, "limit": 9])
        #expect(client.currentUser == Self.ada)
    }

    @Test func `Details tell id, version, user, variation and reason`() async throws {
        let test = try Client()
        try await test.client.initialize(user: Self.ada)
        let details = try #require(test.client.evaluationDetails(flagKey: "checkout"))
        #expect(details.id == "checkout:1:ada" && details.flagKey == "checkout" && details.flagVersion == 1)
        #expect(details.userID == "ada" && details.variationID == "70012" && details.variationKey == "new")
        #expect(details.variationValue == "new" && details.reason == .stored && details.messages.isEmpty)
        #expect(details.experimentID == "7001" && details.ruleKey == "checkout_test")
        let banner = try #require(test.client.evaluationDetails(flagKey: "banner"))
        #expect(banner.reason == .noRule && banner.variationValue == nil && banner.messages == ["why"])
        #expect(test.client.evaluationDetails(flagKey: "nothing") == nil)
        #expect(VariationReason(source: "none", hasVariation: true) == .rollout)
        #expect(VariationReason(source: "something new", hasVariation: true) == .unknown)
    }

    @Test func `Reasons are requested if the app is configured so`() async throws {
        let test = try Client { $0.includesReasons = true }
        try await test.client.initialize(user: Self.ada)
        #expect(test.server.calls("/v1/evaluations")[0].body.contains(#""include_reasons":true"#))
    }

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

    @Test func `A failed poll is retried each minute five times, and then when the interval is over`() async throws {
        // 10:00 fails, 10:01 to 10:05 fail, the next poll is at 10:10.
        let test = try Client(server: StubServer { _ throws(HoldfastError) in .status(500) })
        #expect(
            try await test.client.initialize(user: Self.ada) == .nothing(.unavailable(status: 500, retryAfter: nil)))
        for attempt in 1...5 {
            await test.clock.untilSleeping(for: .seconds(60))
            test.clock.advance(by: .seconds(60))
            await test.server.untilCalled("/v1/evaluations", count: 1 + attempt)
        }
        await test.clock.untilSleeping(for: .seconds(300))
        test.clock.advance(by: .seconds(300))
        await test.server.untilCalled("/v1/evaluations", count: 7)
        // 10:10 fails, 10:11 succeeds, the next poll is at 10:21.
        await test.clock.untilSleeping(for: .seconds(60))
        test.server.respond { call throws(HoldfastError) in Client.usual(call) }
        test.clock.advance(by: .seconds(60))
        await test.clock.untilSleeping(for: .seconds(600))
        #expect(test.client.isEnabled(flagKey: "checkout"))
        #expect(test.server.calls("/v1/evaluations").count == 8)
    }

    @Test func `The background has an interval of its own, and an overdue poll is made up for in the foreground`()
        async throws
    {
        let test = try Client()
        try await test.client.initialize(user: Self.ada)
        await test.clock.untilSleeping(for: .seconds(600))
        test.client.enterBackground()
        await test.clock.untilSleeping(for: .seconds(3_600))
        test.clock.advance(by: .seconds(1_000))
        #expect(test.server.calls("/v1/evaluations").count == 1)
        test.client.enterForeground()
        await test.server.untilCalled("/v1/evaluations", count: 2)
        await test.clock.untilSleeping(for: .seconds(600))
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
        // The stream has ended; the back-off is between half a second and a second.
        while server.calls("/v1/changes").count < 2 {
            test.clock.advance(by: .seconds(1))
            await Task.yield()
        }
        await server.untilCalled("/v1/evaluations", count: 3)
        test.client.enterBackground()
        test.client.destroy()
    }

    @Test
    func `The first use of an experiment's variation is an exposure, later ones are not, and another variation is`()
        async throws
    {
        let test = try Client()
        try await test.client.initialize(user: Self.ada)
        // A call that returns its default shows no variation.
        _ = test.client.boolVariation(flagKey: "checkout", defaultValue: false)
        #expect(test.client.waitingEvents == 0)
        for _ in 0..<10 { _ = test.client.stringVariation(flagKey: "checkout", defaultValue: "") }
        _ = test.client.boolVariation(flagKey: "banner", defaultValue: false)
        _ = test.client.evaluationDetails(flagKey: "checkout")
        #expect(test.client.waitingEvents == 1)
        test.server.respond { call throws(HoldfastError) in
            guard call.path == "/v1/evaluations" else { return Client.usual(call) }
            return .json(Client.evaluations(revision: "2", columns: 4))
        }
        try await test.client.fetchEvaluations()
        _ = test.client.intVariation(flagKey: "checkout", variable: "columns", defaultValue: 1)
        #expect(test.client.waitingEvents == 1)
        test.server.respond { call throws(HoldfastError) in
            guard call.path == "/v1/evaluations" else { return Client.usual(call) }
            return .json(Client.evaluations(revision: "3").replacing("70012", with: "70011"))
        }
        try await test.client.fetchEvaluations()
        _ = test.client.stringVariation(flagKey: "checkout", defaultValue: "")
        #expect(test.client.waitingEvents == 2)
        try await test.client.flush()
        let sent = try JSONDecoder().decode(
            [HoldfastValue].self, from: Data(test.server.calls("/v1/exposures")[0].body.utf8))
        #expect(sent.map { $0["variation_id"] } == ["70012", "70011"])
        #expect(sent.allSatisfy { $0["user_id"] == "ada" && $0["experiment"] == "7001" })
        #expect(sent[0]["timestamp"] == "2027-01-15T08:00:00.000Z")
    }

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

    @Test func `An assignment is what the server says`() async throws {
        let test = try Client(
            server: StubServer { call throws(HoldfastError) in
                call.path == "/v1/assign"
                    ? .json(
                        #"{"experiment_id":"7001","experiment_key":"checkout_test","variation_id":"70012","variation_key":"new","source":"stored","reasons":[]}"#
                    )
                    : Client.usual(call)
            })
        let assignment = try await test.client.assignment(experiment: "checkout_test", user: Self.ada)
        #expect(assignment.variationKey == "new" && assignment.experimentID == "7001")
    }
}

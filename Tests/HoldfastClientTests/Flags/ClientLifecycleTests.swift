import Foundation
import ProcessTestSupport
import Observation
import Testing

@testable import HoldfastClient

/// The shared client, listeners, errors, counts, logs and attributes.
@Suite(.timeLimit(.minutes(2))) struct ClientLifecycleTests {
    private static let ada = HoldfastUser(id: "ada", attributes: ["country": "de"])

    // MARK: Start

    /// The tests of the shared client are one test: there is one such client in a process.
    @Test func `The shared client has the cache at once, and calls back on the main actor`() async throws {
        let directory = try TemporaryDirectory()
        var configuration = HoldfastConfiguration(endpoint: Client.endpoint, directory: directory.url)
        configuration.listensToChanges = false
        #expect(!HoldfastClient.isStarted)
        // Not an exit test of Swift Testing: its monitor waits for any child of the process, and spins for as long as
        // other tests have children, too.
        let misuse = try Program(
            "client-process", [Client.endpoint.absoluteString, directory.url.path, "shared"],
            environment: ["SWIFT_BACKTRACE": "enable=no"], reading: .standard)
        #expect(await misuse.end() != .exit(0))

        #expect(throws: HoldfastError.self) {
            try HoldfastClient.start(configuration: configuration, user: HoldfastUser(id: ""))
        }
        #expect(!HoldfastClient.isStarted)
        let server = StubServer { call throws(HoldfastError) in Client.usual(call) }
        let freshness = try await HoldfastClient.initialize(
            configuration: configuration, user: Self.ada, timeout: .seconds(60), transport: server)
        #expect(freshness == .server && HoldfastClient.shared.isEnabled(flagKey: "checkout"))
        HoldfastClient.shared.destroy()

        let first: HoldfastError? = try await withCheckedThrowingContinuation { continuation in
            do throws(HoldfastError) {
                try HoldfastClient.initialize(
                    configuration: configuration, user: Self.ada, timeout: .seconds(60), transport: server
                ) { error in
                    MainActor.assertIsolated()
                    continuation.resume(returning: error)
                }
            } catch { continuation.resume(throwing: error) }
        }
        #expect(first == nil)
        #expect(HoldfastClient.shared.isEnabled(flagKey: "checkout"))
        #expect(throws: HoldfastError.alreadyStarted) {
            try HoldfastClient.start(configuration: configuration, user: Self.ada)
        }
        try AttributeService.shared.update(attributes: ["age": 40])
        #expect(AttributeService.shared.attributes() == ["age": 40])
        let flushed = await withCheckedContinuation { continuation in
            HoldfastClient.shared.flush { continuation.resume(returning: $0) }
        }
        #expect(flushed == nil)
        HoldfastClient.shared.destroy()
        #expect(!HoldfastClient.isStarted)

        let down = StubServer { _ throws(HoldfastError) in throw .unreachable("it is down") }
        try HoldfastClient.start(configuration: configuration, user: Self.ada, transport: down)
        #expect(HoldfastClient.shared.isEnabled(flagKey: "checkout"))
        let fetched = await withCheckedContinuation { continuation in
            HoldfastClient.shared.fetchEvaluations { continuation.resume(returning: $0) }
        }
        #expect(fetched == .unreachable("it is down"))
        HoldfastClient.shared.destroy()
        let late: HoldfastError? = try await withCheckedThrowingContinuation { continuation in
            let silent = StubServer { _ throws(HoldfastError) in
                try? await Task.sleep(for: .seconds(3_600))
                throw .cancelled
            }
            do throws(HoldfastError) {
                try HoldfastClient.initialize(
                    configuration: configuration, user: Self.ada, timeout: .milliseconds(10), transport: silent
                ) { continuation.resume(returning: $0) }
            } catch { continuation.resume(throwing: error) }
        }
        #expect(late == .timedOut)
        HoldfastClient.shared.destroy()
    }

    @Test func `A client can start without waiting`() async throws {
        let test = try Client()
        try test.client.start(user: Self.ada)
        #expect(test.client.currentUser == Self.ada)
        await test.server.untilCalled("/v1/evaluations")
        #expect(throws: HoldfastError.self) { try test.client.start(user: HoldfastUser(id: "")) }
    }

    // MARK: Errors

    @Test(arguments: [
        (StubServer.Response.problem(401, "no token"), HoldfastError.unauthorized(detail: "no token")),
        (.problem(403, "wrong scope"), .unauthorized(detail: "wrong scope")),
        (.problem(404, "no such project", "/sdk_key"), .unknownProject(detail: "no such project")),
        (.problem(400, "no", "/attributes"), .refused(status: 400, detail: "no", pointer: "/attributes")),
        (.status(404), .refused(status: 404, detail: "no details")),
        (.status(503), .unavailable(status: 503, retryAfter: nil)),
    ])
    func `Errors are told apart, by the first fetch and by polls`(answer: StubServer.Response, error: HoldfastError)
        async throws
    {
        let test = try Client(server: StubServer { _ throws(HoldfastError) in answer })
        let errors = Log<HoldfastError?>()
        let token = test.client.addFetchListener { errors.add($0) }
        #expect(try await test.client.initialize(user: Self.ada) == .nothing(error))
        #expect(test.client.fetchError == error)
        await test.clock.untilSleeping(for: .seconds(60))
        test.server.respond { call throws(HoldfastError) in Client.usual(call) }
        test.clock.advance(by: .seconds(60))
        await test.clock.untilSleeping(for: .seconds(600))
        #expect(errors.all == [error, nil])
        token.cancel()
        try await test.client.fetchEvaluations()
        #expect(errors.all.count == 2)
    }

    // MARK: Listeners

    @Test func `Listeners are removed by key, and all at once`() async throws {
        let test = try Client()
        let log = Log<String>()
        let first = test.client.addUpdateListener { _ in log.add("first") }
        let second = test.client.addUpdateListener { _ in log.add("second") }
        var updates = test.client.updates().makeAsyncIterator()
        #expect(first != second)
        try await test.client.initialize(user: Self.ada)
        #expect(log.all == ["first", "second"])
        test.client.removeUpdateListener(first)
        try await test.client.initialize(user: HoldfastUser(id: "bob"))
        #expect(log.all == ["first", "second", "second", "second"])
        test.client.clearUpdateListeners()
        try await test.client.initialize(user: HoldfastUser(id: "cyd"))
        #expect(log.all.count == 4)
        // The streams of the library go on.
        for _ in 0..<4 { #expect(await updates.next() == ["checkout", "banner"]) }
    }

    @Test func `A listener may be called on the main actor`() async throws {
        let test = try Client()
        let (keys, continuation) = AsyncStream.makeStream(of: Set<String>.self)
        test.client.addMainActorUpdateListener { keys in
            MainActor.assertIsolated()
            continuation.yield(keys)
        }
        try await test.client.initialize(user: Self.ada)
        for await keys in keys {
            #expect(keys == ["checkout", "banner"])
            break
        }
    }

    @Test @MainActor func `A listener that is removed on the main actor is not called any more`() async throws {
        let test = try Client()
        try await test.client.initialize(user: Self.ada)
        let log = Log<String>()
        let first = test.client.addMainActorUpdateListener { _ in log.add("first") }
        test.client.addMainActorUpdateListener { _ in log.add("second") }
        // The calls are on their way to the main actor when this returns, and it is busy here.
        try test.client.start(user: HoldfastUser(id: "bob"))
        test.client.removeUpdateListener(first)
        await Task {}.value
        #expect(!log.all.contains("first"))
        try test.client.start(user: Self.ada)
        test.client.clearUpdateListeners()
        let called = log.all.count
        await Task {}.value
        #expect(log.all.count == called)
        test.client.destroy()
    }

    @Test @MainActor func `A model of flags notifies its observers`() async throws {
        let test = try Client()
        let model = FlagModel(client: test.client)
        let (changes, continuation) = AsyncStream.makeStream(of: Void.self)
        let before = withObservationTracking {
            model.isEnabled(flagKey: "checkout")
        } onChange: {
            continuation.yield()
        }
        #expect(!before)
        try await test.client.initialize(user: Self.ada)
        for await _ in changes { break }
        #expect(model.isEnabled(flagKey: "checkout"))
        #expect(model.stringVariation(flagKey: "checkout", defaultValue: "") == "new")
        #expect(model.intVariation(flagKey: "checkout", variable: "columns", defaultValue: 0) == 3)
        #expect(model.doubleVariation(flagKey: "checkout", variable: "columns", defaultValue: 0) == 3)
        #expect(model.boolVariation(flagKey: "checkout", variable: "eager", defaultValue: false))
        #expect(
            model.jsonVariation(flagKey: "checkout", variable: "theme", defaultValue: ["dark": false]) == ["dark": true]
        )
        #expect(model.evaluationDetails(flagKey: "checkout")?.reason == .stored)
    }

    /// A hundred flags, of which the first are on.
    nonisolated private static func flags(on changed: Int) -> String {
        let flags = (0..<100).map { #"{"flag_key":"flag\#($0)","enabled":\#($0 < changed)}"# }
        return #"{"user_id":"ada","revision":"\#(changed)","evaluations":[\#(flags.joined(separator: ","))]}"#
    }

    @Test @MainActor func `Of a hundred views only those are redrawn that read a changed flag`() async throws {
        let test = try Client()
        test.server.respond { call throws(HoldfastError) in
            call.path == "/v1/evaluations" ? .json(Self.flags(on: 0)) : Client.usual(call)
        }
        try await test.client.initialize(user: Self.ada)
        let (flags, redrawn) = (FlagModel(client: test.client), Log<Int>())
        for view in 0..<100 {
            withObservationTracking {
                _ = flags.isEnabled(flagKey: "flag\(view)")
            } onChange: {
                redrawn.add(view)
            }
        }
        test.server.respond { call throws(HoldfastError) in
            call.path == "/v1/evaluations" ? .json(Self.flags(on: 2)) : Client.usual(call)
        }
        try await test.client.fetchEvaluations()
        // The model tells on the main actor, after those that this waits for.
        await Task { @MainActor in }.value
        #expect(Set(redrawn.all) == [0, 1] && redrawn.all.count == 2)
        test.client.destroy()
    }

    @Test @MainActor func `A model without a client has the defaults`() {
        let model = FlagModel(client: nil)
        #expect(model.boolVariation(flagKey: "checkout", defaultValue: true))
        #expect(model.stringVariation(flagKey: "checkout", defaultValue: "a") == "a")
        #expect(model.intVariation(flagKey: "checkout", defaultValue: 1) == 1)
        #expect(model.doubleVariation(flagKey: "checkout", defaultValue: 0.5) == 0.5)
        #expect(model.jsonVariation(flagKey: "checkout", defaultValue: ["a": 1]) == ["a": 1])
        #expect(model.isEnabled(flagKey: "checkout", defaultValue: true))
        #expect(model.evaluationDetails(flagKey: "checkout") == nil)
    }

    // MARK: Counts

    @Test func `Every evaluation counts by flag, variation and reason, defaults and errors too`() async throws {
        let test = try Client()
        let client = test.client
        _ = client.boolVariation(flagKey: "checkout", defaultValue: false)
        try await client.initialize(user: Self.ada)
        for _ in 0..<3 { _ = client.stringVariation(flagKey: "checkout", defaultValue: "") }
        _ = client.isEnabled(flagKey: "checkout")
        for _ in 0..<2 { _ = client.boolVariation(flagKey: "checkout", defaultValue: false) }
        _ = client.stringVariation(flagKey: "banner", defaultValue: "")
        _ = client.stringVariation(flagKey: "nothing", defaultValue: "")
        _ = client.evaluationDetails(flagKey: "checkout")
        // A new snapshot goes on counting.
        test.server.respond { _ throws(HoldfastError) in .json(Client.evaluations(revision: "2", columns: 4)) }
        try await client.fetchEvaluations()
        _ = client.stringVariation(flagKey: "checkout", defaultValue: "")

        func text(_ count: EvaluationCount) -> String {
            "\(count.flagKey) \(count.variationKey ?? "-") \(count.reason.rawValue) \(count.count)"
        }
        #expect(
            client.evaluationCounts().map(text) == [
                "banner - no_rule 1", "checkout - not_fetched 1", "checkout - wrong_type 2", "checkout new stored 5",
                "nothing - flag_not_found 1",
            ])
        #expect(client.evaluationCounts(resetting: true).count == 5)
        #expect(client.evaluationCounts().isEmpty)
        _ = client.stringVariation(flagKey: "checkout", defaultValue: "")
        #expect(client.evaluationCounts().map(text) == ["checkout new stored 1"])
    }

    @Test func `Keys that no flag has leave room for the counts of flags`() async throws {
        let test = try Client()
        try await test.client.initialize(user: Self.ada)
        for number in 0..<11_000 { _ = test.client.boolVariation(flagKey: "generated\(number)", defaultValue: false) }
        test.server.respond { _ throws(HoldfastError) in
            .json(Client.evaluations(revision: "2").replacing(#""new""#, with: #""newer""#))
        }
        try await test.client.fetchEvaluations()
        _ = test.client.stringVariation(flagKey: "checkout", defaultValue: "")
        let counts = test.client.evaluationCounts()
        #expect(counts.count <= 10_000)
        #expect(counts.first { $0.flagKey == "checkout" }?.variationKey == "newer")
    }

    @Test func `Each count of evaluations is reported once, also when the app resets its view`() async throws {
        let test = try Client { $0.reportsEvaluationCounts = true }
        _ = test.client.boolVariation(flagKey: "checkout", defaultValue: false)
        try await test.client.initialize(user: HoldfastUser(id: "ada"))
        for _ in 0..<2 { _ = test.client.stringVariation(flagKey: "checkout", defaultValue: "") }
        _ = test.client.evaluationCounts(resetting: true)
        for _ in 0..<2 { try await test.client.flush() }
        let counts = test.server.calls("/v1/evaluations/counts").flatMap { $0.json.arrayValue ?? [] }
            .flatMap { $0["counts"]?.arrayValue ?? [] }
        #expect(
            counts == [
                ["flag_key": "checkout", "reason": "not_fetched", "count": 1],
                ["flag_key": "checkout", "variation_key": "new", "reason": "stored", "count": 2],
            ])
        // An older server has no such route.
        test.server.respond { call throws(HoldfastError) in
            call.path == "/v1/evaluations/counts" ? .problem(404, "no such path") : Client.usual(call)
        }
        _ = test.client.stringVariation(flagKey: "checkout", defaultValue: "")
        try await test.client.flush()
        #expect(test.client.queueMetrics.refused == 1)
        test.client.destroy()
    }

    // MARK: Background

    @Test func `A background task fetches flags and sends events`() async throws {
        let test = try Client()
        try await test.client.initialize(user: Self.ada)
        test.client.enterBackground()
        test.client.track(goalID: "purchase")
        try await test.client.refreshInBackground()
        #expect(test.client.waitingEvents == 0)
        #expect(test.server.calls("/v1/evaluations").count == 2)
        test.client.track(goalID: "purchase")
        test.server.respond { call throws(HoldfastError) in
            if call.path == "/v1/evaluations" { throw .unreachable("it is down") }
            return Client.usual(call)
        }
        await #expect(throws: HoldfastError.unreachable("it is down")) { try await test.client.refreshInBackground() }
        #expect(test.client.waitingEvents == 0)
        test.client.track(goalID: "purchase")
        test.server.respond { call throws(HoldfastError) in
            throw call.path == "/v1/evaluations" ? .unreachable("it is down") : .timedOut
        }
        await #expect(throws: HoldfastError.unreachable("it is down")) { try await test.client.refreshInBackground() }
    }

    // MARK: Configuration

    @Test func `A logger hears of fetches and events`() async throws {
        let log = Log<String>()
        let test = try Client {
            $0.logger = { level, message, metadata in log.add("\(level.rawValue) \(message) \(metadata)") }
        }
        try await test.client.initialize(user: Self.ada)
        test.server.respond { _ throws(HoldfastError) in throw .unreachable("it is down") }
        try? await test.client.fetchEvaluations()
        test.client.track(goalID: "purchase")
        try? await test.client.flush()
        #expect(log.all.first == "debug flags fetched [:]")
        test.client.destroy()

        let second = try Client { $0.logger = { level, message, _ in log.add("\(level.rawValue) \(message)") } }
        second.client.track(goalID: "purchase")
        #expect(log.all.last == "warning goal not reported: there is no current user")
        #expect(second.client.waitingEvents == 0)
        second.client.updateUserAttributes(["country": "de"])
        #expect(log.all.last == "warning attributes not updated: there is no current user")
        #expect(log.all.contains { $0.hasPrefix("warning flags could not be fetched") && $0.contains("it is down") })
        #expect(log.all.contains { $0.hasPrefix("notice event postponed") && $0.contains("goal") })
    }

    @Test func `A log of all levels has the values of attributes, and says what the server has stored`() async throws {
        let log = Log<String>()
        let test = try Client {
            $0.logger = { level, message, metadata in log.add("\(level) \(message) \(metadata.values.sorted())") }
        }
        try AttributeService(client: test.client).update(attributes: ["age": 40], userID: "ada")
        try await test.client.flush()
        let (queued, stored) = try (#require(log.all.first), #require(log.all.last))
        #expect(queued.hasPrefix("trace attributes queued") && queued.contains("40"))
        #expect(stored == #"debug event delivered ["age", "attributes"]"#)
        test.client.destroy()
    }

    @Test func `The app's version and strings are attributes`() async throws {
        let test = try Client { $0.appVersion = "1.2" }
        let strings: [String: String] = ["genre": "female"]
        try await test.client.initialize(user: HoldfastUser(id: "ada", attributes: strings))
        test.client.updateUserAttributes(["app_version": "own"] as [String: String])
        await test.server.untilCalled("/v1/evaluations", count: 2)
        let sent = try test.server.calls("/v1/evaluations").map {
            try JSONDecoder().decode(HoldfastValue.self, from: Data($0.body.utf8))["attributes"]
        }
        #expect(sent == [["genre": "female", "app_version": "1.2"], ["app_version": "own"]])
        #expect(test.client.currentUser?.attributes == ["app_version": "own"])
        let standard = HoldfastUser.standardAttributes(appVersion: "1.2")
        #expect(standard["app_version"] == "1.2" && standard["os_name"] != nil && standard["device_model"] != nil)
        #expect(standard.keys.contains("os_version"))
    }
}

import Foundation
import Testing

@testable import HoldfastClient

/// The library against the built server over real sockets.
@Suite struct RealServerTests {
    private let directory: TemporaryDirectory
    private let server: RealServer
    private static let ada = HoldfastUser(id: "ada", attributes: ["country": "de"])

    init() async throws {
        directory = try TemporaryDirectory()
        server = try await RealServer()
    }

    @Test func `A wrong path of the endpoint is told from an unknown project`() async throws {
        for (path, sdkKey) in [("wrong", "shop"), ("", "missing")] {
            var configuration = HoldfastConfiguration(
                endpoint: try server.endpoint.appendingPathComponent(path), sdkKey: sdkKey,
                directory: try TemporaryDirectory().url)
            configuration.listensToChanges = false
            let client = try HoldfastClient(configuration: configuration)
            let expected: HoldfastError =
                path.isEmpty
                ? .unknownProject(detail: "no project has the SDK key 'missing'")
                : .refused(status: 404, detail: "the server has no such path; check that of the endpoint")
            #expect(
                try await client.initialize(user: HoldfastUser(id: "ada"), timeout: .seconds(60)) == .nothing(expected))
            await #expect(throws: expected) { try await client.assignment(experiment: "checkout_test") }
            client.destroy()
        }
    }

    @Test func `A user gets flags, keeps the variation, and receives a change at once`() async throws {
        try await server.putDatafile(revision: 1, controlEnd: 0)
        let client = try server.client(in: directory)
        #expect(try await client.initialize(user: Self.ada, timeout: .seconds(60)) == .server)
        #expect(client.isEnabled(flagKey: "checkout", defaultValue: false))
        #expect(client.stringVariation(flagKey: "checkout", defaultValue: "") == "new")
        #expect(client.intVariation(flagKey: "checkout", variable: "columns", defaultValue: 1) == 3)
        let assignment = try await client.assignment(experiment: "checkout_test")
        #expect(assignment.variationKey == "new" && assignment.source == "stored")

        var updates = client.updates().makeAsyncIterator()
        try await server.putDatafile(revision: 2, controlEnd: 10_000, columns: 4)
        #expect(await updates.next() == ["checkout"])
        #expect(client.intVariation(flagKey: "checkout", variable: "columns", defaultValue: 1) == 4)
        #expect(client.evaluationDetails(flagKey: "checkout")?.reason == .stored)
        try await client.fetchEvaluations()
        client.destroy()
    }

    @Test func `Exposures and goals reach the server, once each`() async throws {
        try await server.putDatafile(revision: 1, controlEnd: 0)
        let client = try server.client(in: directory)
        try await client.initialize(user: Self.ada, timeout: .seconds(60))
        for _ in 0..<3 { _ = client.isEnabled(flagKey: "checkout", defaultValue: false) }
        client.track(goalID: "purchase", value: 49.5)
        client.track(goalID: "purchase")
        try await client.flush()
        #expect(client.waitingEvents == 0)
        let exposures = try await server.exposures()
        #expect(exposures.count == 1)
        #expect(exposures.first?["user_id"] == "ada" && exposures.first?["variation_id"] == "70012")
        let goals = try await server.goalEvents()
        #expect(goals.count == 2)
        #expect(Set(goals.compactMap { $0["id"] }).count == 2)
        #expect(goals.first?["value"] == 49.5)
        client.destroy()
    }

    @Test func `Exposures of an experiment that is gone keep no others from the server`() async throws {
        try await server.putDatafile(revision: 1)
        let client = try server.client(in: directory)
        for user in 0..<100 { client.reportExposure(experiment: "gone", variationID: "1", userID: "user\(user)") }
        for user in 0..<500 { client.reportExposure(experiment: "7001", variationID: "70012", userID: "user\(user)") }
        await #expect(throws: HoldfastError.self) { try await client.flush() }
        #expect(client.waitingEvents == 100)
        #expect(try await server.exposures().count == 500)
        client.destroy()
    }

    @Test func `An exposure older than a week is refused, whether or not its experiment exists`() async throws {
        try await server.putDatafile(revision: 1)
        let configuration = HoldfastConfiguration(endpoint: try server.endpoint, directory: directory.url)
        let client = try HoldfastClient(configuration: configuration, clock: LastWeek())
        var notices = client.deliveries().makeAsyncIterator()
        client.reportExposure(experiment: "gone", variationID: "1", userID: "ada")
        try await client.flush()
        guard case .refused(let reason) = await notices.next()?.outcome else {
            Issue.record("not told")
            return
        }
        #expect(reason.contains("7 days"))
        #expect(client.waitingEvents == 0)
        client.destroy()
    }

    @Test func `Events of a device whose clock is wrong arrive, once it has heard of the server's`() async throws {
        try await server.putDatafile(revision: 1)
        let configuration = HoldfastConfiguration(endpoint: try server.endpoint, directory: directory.url)
        let client = try HoldfastClient(configuration: configuration, clock: LastWeek())
        try await client.initialize(user: Self.ada, timeout: .seconds(60))
        client.track(goalID: "purchase")
        try await client.flush()
        #expect(client.queueMetrics.refused == 0)
        #expect(try await server.goalEvents().count == 1)
        client.destroy()
    }

    @Test func `Profiles are saved and looked up, and what the server has first stays`() async throws {
        try await server.request(
            "PUT", "/v1/profiles/bob", #"{"experiment_bucket_map":{"1":{"variation_id":"first"}}}"#)
        let client = try server.client(in: directory)
        let service = UserProfileService(client: client)
        // Nothing is known of the user yet; the SDK decides by itself.
        service.save(userProfile: UserProfile(userID: "bob", experimentBucketMap: ["1": "other", "2": "b"]))
        try await client.flush()
        try await service.load(userIDs: ["bob", "nobody"])
        #expect(service.lookup(userID: "bob")?.experimentBucketMap == ["1": "first", "2": "b"])
        #expect(service.lookup(userID: "nobody") == nil)
        // What is known is replaced on purpose.
        service.save(userProfile: UserProfile(userID: "bob", experimentBucketMap: ["1": "third"]))
        try await client.flush()
        #expect(try await server.request("GET", "/v1/profiles/bob").contains(#""1":{"variation_id":"third"}"#))
        client.destroy()
    }

    @Test func `A server that is killed and restarted receives all events of the meantime`() async throws {
        try await server.putDatafile(revision: 1, controlEnd: 0)
        let client = try server.client(in: directory)
        let service = UserProfileService(client: client)
        try await client.initialize(user: Self.ada, timeout: .seconds(60))
        server.kill()
        #expect(client.isEnabled(flagKey: "checkout", defaultValue: false))
        for number in 0..<20 {
            client.track(goalID: "purchase", value: Double(number))
            service.save(userProfile: UserProfile(userID: "user\(number)", experimentBucketMap: ["1": "a"]))
        }
        await #expect(throws: HoldfastError.self) { try await client.flush() }
        await #expect(throws: HoldfastError.self) { try await client.fetchEvaluations() }
        // 20 goals, 20 profiles, the exposure, and a report that counts its evaluation.
        #expect(client.waitingEvents == 42)

        var updates = client.updates().makeAsyncIterator()
        let again = try await RealServer(after: server)
        try await client.flush()
        #expect(client.waitingEvents == 0)
        #expect(try await again.goalEvents().count == 20)
        #expect(try await again.request("GET", "/v1/profiles").split(separator: "\n").count == 21)
        // The stream of changes is taken up again by itself.
        try await again.putDatafile(revision: 2, columns: 5)
        #expect(await updates.next() == ["checkout"])
        client.destroy()
    }

    @Test func `An unknown project is an error of its own`() async throws {
        try await server.putDatafile(revision: 1)
        let client = try server.client(in: directory) { $0.sdkKey = "nowhere" }
        guard
            case .nothing(.unknownProject(let detail)) = try await client.initialize(
                user: Self.ada, timeout: .seconds(60))
        else {
            Issue.record("\(String(describing: client.fetchError))")
            return
        }
        #expect(detail.contains("nowhere"))
        await #expect(throws: HoldfastError.unknownProject(detail: detail)) {
            try await client.assignment(experiment: "checkout_test")
        }
        client.track(goalID: "purchase")
        await #expect(throws: HoldfastError.unknownProject(detail: detail)) { try await client.flush() }
        #expect(client.waitingEvents == 1)
        client.destroy()
    }

    @Test func `A flag that is turned off on the server is off, whatever the app's default is`() async throws {
        try await server.request("PUT", "/v1/flags/sale", #"{"type":"boolean","rules":[{"variation":"on"}]}"#)
        try await server.request(
            "PUT", "/v1/flags/limit",
            #"{"type":"integer","variations":[{"key":"few","value":5},{"key":"many","value":9}],"rules":[{"variation":"many"}]}"#
        )
        let client = try server.client(in: directory)
        try await client.initialize(user: Self.ada, timeout: .seconds(60))
        #expect(client.boolVariation(flagKey: "sale", defaultValue: true))
        #expect(client.intVariation(flagKey: "limit", defaultValue: 1) == 9)
        for flag in ["sale", "limit"] { try await server.request("PUT", "/v1/flags/\(flag)", #"{"enabled":false}"#) }
        try await client.fetchEvaluations()
        #expect(!client.boolVariation(flagKey: "sale", defaultValue: true))
        #expect(client.intVariation(flagKey: "limit", defaultValue: 1) == 5)
        #expect(client.evaluationDetails(flagKey: "sale")?.reason == .disabled)
        try await client.flush()
        #expect(client.queueMetrics.refused == 0)
        let metrics = try await server.request("GET", "/metrics")
        #expect(metrics.contains(#",flag="sale",variation="",reason="disabled"} 1"#))
        client.destroy()
    }

    @Test func `A flag's reason tells deliveries from experiments`() async throws {
        try await server.request("PUT", "/v1/attributes/country", #"{"type":"country"}"#)
        let forGermans = #"{"type":"custom_attribute","name":"country","match":"exact","value":"de"}"#
        try await server.request(
            "PUT", "/v1/flags/delivered",
            #"{"type":"boolean","rules":[{"variation":"on","audience":\#(forGermans)}],"otherwise":"off"}"#)
        try await server.request("PUT", "/v1/flags/for-all", #"{"type":"boolean","otherwise":"on"}"#)
        try await server.request("PUT", "/v1/flags/off", #"{"type":"boolean","enabled":false}"#)
        try await server.request(
            "PUT", "/v1/flags/tested", #"{"type":"boolean","rules":[{"experiment":{"weights":{"on":1,"off":1}}}]}"#)
        try await server.request("PUT", "/v1/experiments/checkout", #"{"variations":["control","new"]}"#)
        try await server.request("PUT", "/v1/experiments/closed", #"{"variations":["control","new"],"traffic":0}"#)
        let client = try server.client(in: directory)
        try await client.initialize(user: Self.ada, timeout: .seconds(60))
        func reasons() -> [String: VariationReason] {
            Dictionary(uniqueKeysWithValues: client.allEvaluationDetails.map { ($0.flagKey, $0.reason) })
        }
        #expect(
            reasons() == [
                "delivered": .rollout, "for-all": .rollout, "off": .disabled, "tested": .bucketed,
                "checkout": .bucketed, "closed": .noRule,
            ])
        try await client.fetchEvaluations()
        #expect(reasons()["tested"] == .stored && reasons()["checkout"] == .stored)
        #expect(reasons()["delivered"] == .rollout)
        client.destroy()
    }

    @Test func `A server with attributes and without flags has no flags, which is no error`() async throws {
        try await server.request("PUT", "/v1/attributes/age", #"{"type":"number"}"#)
        let log = Log<String>()
        let client = try server.client(in: directory) {
            $0.logger = { level, message, metadata in
                if level == .warning || level == .error { log.add("\(message) \(metadata)") }
            }
        }
        #expect(try await client.initialize(user: Self.ada, timeout: .seconds(60)) == .server)
        try AttributeService(client: client).update(attributes: ["age": 40])
        try await client.flush()
        #expect(client.allEvaluationDetails.isEmpty && log.all == [])
        // Flags that are made later arrive like changes.
        try await server.request("PUT", "/v1/flags/sale", #"{"type":"boolean","otherwise":"on"}"#)
        try await client.fetchEvaluations()
        #expect(client.boolVariation(flagKey: "sale", defaultValue: false))
        client.destroy()
    }

    @Test func `Reasons of a decision reach the app`() async throws {
        try await server.putDatafile(revision: 1)
        let client = try server.client(in: directory) { $0.includesReasons = true }
        try await client.initialize(user: Self.ada, timeout: .seconds(60))
        #expect(client.evaluationDetails(flagKey: "checkout")?.messages.isEmpty == false)
        client.destroy()
    }

    @Test func `An experiment is a flag of its key, and tags select flags`() async throws {
        try await server.request("PUT", "/v1/experiments/checkout", #"{"variations":["control","new"]}"#)
        try await server.request("PUT", "/v1/flags/banner", #"{"type":"boolean","otherwise":"on","tags":["web"]}"#)
        let client = try server.client(in: directory)
        try await client.initialize(user: Self.ada, timeout: .seconds(60))
        let variation = client.stringVariation(flagKey: "checkout", defaultValue: "")
        #expect(["control", "new"].contains(variation))
        #expect(try await client.assignment(experiment: "checkout").variationKey == variation)
        #expect(client.boolVariation(flagKey: "banner", defaultValue: false))
        #expect(client.evaluationDetails(flagKey: "checkout")?.flagVersion == 1)
        #expect(client.evaluationDetails(flagKey: "banner")?.flagVersion == 2)
        client.destroy()

        let tagged = try server.client(in: TemporaryDirectory()) { $0.tags = ["web", "ios"] }
        try await tagged.initialize(user: Self.ada, timeout: .seconds(60))
        #expect(tagged.boolVariation(flagKey: "banner", defaultValue: false))
        #expect(tagged.stringVariation(flagKey: "checkout", defaultValue: "none") == "none")
        tagged.destroy()
    }

    @Test func `A token that the server does not know is an error with the server's words`() async throws {
        let tokens = directory.path("tokens")
        try "write app a-secret-that-is-long-enough\n".write(toFile: tokens, atomically: false, encoding: .utf8)
        try FileManager.default.setAttributes([.posixPermissions: 0o600], ofItemAtPath: tokens)
        let guarded = try await RealServer(tokens: tokens)
        let client = try guarded.client(in: TemporaryDirectory()) { $0.token = "another-secret-altogether" }
        try await client.initialize(user: Self.ada, timeout: .seconds(60))
        let error = await #expect(throws: HoldfastError.self) { try await client.fetchEvaluations() }
        guard case .unauthorized(let detail) = error else {
            Issue.record("\(String(describing: error))")
            return
        }
        #expect(detail.contains("token"))
        client.track(goalID: "purchase")
        await #expect(throws: HoldfastError.self) { try await client.flush() }
        #expect(client.waitingEvents == 1)
        client.destroy()
    }
}

/// Events of this clock are too old for the server.
private struct LastWeek: HoldfastClock {
    var now: Date { Date(timeIntervalSinceNow: -8 * 86_400) }

    func sleep(for duration: Duration) async throws {
        try await SystemClock().sleep(for: duration)
    }
}

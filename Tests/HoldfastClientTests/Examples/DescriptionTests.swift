import Foundation
import HoldfastClient
import Synchronization
import Testing

// The examples of the five public descriptions, translated to this library; see the article Coverage.

/// The examples of Bucketeer's iOS documentation. Those of the shared client, of which a process has one, are in
/// ClientLifecycleTests.
@Suite(.timeLimit(.minutes(5))) struct BucketeerExamples {
    private let server = StubServer { call throws(HoldfastError) in Client.usual(call) }
    private let directory: TemporaryDirectory

    init() throws {
        directory = try TemporaryDirectory()
    }

    private func client() throws -> HoldfastClient {
        var configuration = HoldfastConfiguration(
            endpoint: Client.endpoint, token: "YOUR_TOKEN", directory: directory.url)
        configuration.tags = ["YOUR_TAG"]
        configuration.appVersion = "1.0.0"
        configuration.backgroundPollingInterval = .seconds(1_800)
        configuration.listensToChanges = false
        return try HoldfastClient(configuration: configuration, transport: server, clock: ManualClock())
    }

    @Test func `Initialize with a time-out, and show the feature if it is on`() async throws {
        let client = try client()
        let user = HoldfastUser(id: "USER_ID")
        let freshness = try await client.initialize(user: user, timeout: .milliseconds(2_000))
        #expect(freshness.error == nil)
        let showNewFeature = client.boolVariation(flagKey: "checkout", variable: "eager", defaultValue: false)
        #expect(showNewFeature)
        client.destroy()
    }

    @Test func `Variations of each type have a default`() throws {
        let client = try client()
        #expect(client.boolVariation(flagKey: "missing", defaultValue: true))
        #expect(client.stringVariation(flagKey: "missing", defaultValue: "a") == "a")
        #expect(client.intVariation(flagKey: "missing", defaultValue: 1) == 1)
        #expect(client.doubleVariation(flagKey: "missing", defaultValue: 0.5) == 0.5)
        #expect(client.jsonVariation(flagKey: "missing", defaultValue: ["a": HoldfastValue.bool(true)]) == ["a": true])
        #expect(client.evaluationDetails(flagKey: "missing") == nil)
        client.destroy()
    }

    @Test func `Fetch with a time-out, track a goal, flush`() async throws {
        let client = try client()
        try client.start(user: HoldfastUser(id: "USER_ID"))
        let fetched = await withCheckedContinuation { continuation in
            client.fetchEvaluations(timeout: .milliseconds(5_000)) { continuation.resume(returning: $0) }
        }
        #expect(fetched == nil)
        client.track(goalID: "YOUR_GOAL_ID", value: 10.50)
        let flushed = await withCheckedContinuation { continuation in
            client.flush { continuation.resume(returning: $0) }
        }
        #expect(flushed == nil)
        #expect(server.calls("/v1/events")[0].body.contains(#""value":10.5"#))
        client.destroy()
    }

    @Test func `Attributes are set, updated and read`() async throws {
        let client = try client()
        let attributes = [
            "app_version": "1.0.0", "os_version": "11.0.0", "device_model": "iphone-12", "language": "english",
        ]
        try await client.initialize(user: HoldfastUser(id: "USER_ID", attributes: attributes))
        client.updateUserAttributes(["app_version": "1.0.1", "country": "japan"])
        #expect(
            client.currentUser == HoldfastUser(id: "USER_ID", attributes: ["app_version": "1.0.1", "country": "japan"]))
        client.destroy()
    }

    @Test func `Details follow the evaluation`() async throws {
        let client = try client()
        try await client.initialize(user: HoldfastUser(id: "ada"))
        #expect(client.stringVariation(flagKey: "checkout", defaultValue: "") == "new")
        let details = try #require(client.evaluationDetails(flagKey: "checkout"))
        #expect(details.id == "checkout:1:ada" && details.userID == "ada" && details.flagVersion == 1)
        #expect(details.variationID == "70012" && details.variationValue == "new" && details.reason == .stored)
        #expect(server.calls("/v1/evaluations")[0].json["tags"] == ["YOUR_TAG"])
        client.destroy()
    }

    @Test func `A listener is removed by its key`() async throws {
        let client = try client()
        let token = client.addMainActorUpdateListener { _ in
            _ = client.boolVariation(flagKey: "checkout", defaultValue: false)
        }
        client.removeUpdateListener(token)
        client.clearUpdateListeners()
        // A change of user: what waits is sent first.
        try await client.initialize(user: HoldfastUser(id: "USER_ID"))
        try await client.flush()
        try await client.initialize(user: HoldfastUser(id: "ANOTHER_ID"))
        client.destroy()
    }
}

enum ButtonColorSplitTest: SplitTest {
    static let identifier = "button_color"

    enum Group: String, CaseIterable, SplitTestGroup {
        case red
        case blue
        case darkGray = "dark_gray"

        var color: String {
            switch self {
            case .red: "#f00"
            case .blue: "#00f"
            case .darkGray: "#333"
            }
        }
    }
}

/// The example of Badoo's article: the color of a button.
struct BadooExample {
    @Test func `The button has one color, and analytics are told once`() async throws {
        let storage = InMemorySplitTestStorage()
        let analytics = RecordingAnalytics()
        var colors: Set<String> = []
        for _ in 0..<5 {
            let service = SplitTestService(client: nil, storage: storage, analytics: analytics)
            let buttonSplitTest = await service.fetchSplitTest(ButtonColorSplitTest.self)
            colors.insert(buttonSplitTest.group.color)
            buttonSplitTest.hit()
        }
        #expect(colors.count == 1)
        let group = try #require(storage.string(forKey: "split_test_database-button_color"))
        #expect(ButtonColorSplitTest.Group(rawValue: group)?.color == colors.first)
        #expect(analytics.calls == ["split_test-button_color=\(group)"])
    }
}

/// The examples of Optimizely's documentation of the Swift SDK; those with the SDK's own protocol are in
/// HoldfastOptimizelyTests.
struct OptimizelyExamples {
    @Test func `A profile has the documented schema, and an entry overrides the bucketing`() throws {
        let json = #"{"user_id":"ada","experiment_bucket_map":{"7001":{"variation_id":"70012"}}}"#
        let profile = try JSONDecoder().decode(UserProfile.self, from: Data(json.utf8))
        let directory = try TemporaryDirectory()
        let service = try DeviceUserProfileService(file: directory.url.appending(path: "profiles.json"))
        #expect(service.lookup(userID: "ada") == nil)
        service.save(userProfile: profile)
        #expect(service.lookup(userID: "ada")?.experimentBucketMap["7001"] == "70012")
    }

    @Test func `For tracking alone, lookups return nothing`() throws {
        let test = try Client()
        let service = UserProfileService(client: test.client, mode: .trackingOnly)
        service.save(userProfile: UserProfile(userID: "ada", experimentBucketMap: ["7001": "70012"]))
        #expect(service.lookup(userID: "ada") == nil)
        #expect(test.client.waitingEvents == 1)
        test.client.destroy()
    }
}

/// The examples of the Experiments framework. Its four kinds of values, by macro and by hand, are in RemoteValueDoubles.
struct ExperimentsExample {
    private enum Key: String, CaseIterable, RemoteKey {
        case paywallType = "paywall_type"
        case aFeatureEnabled = "a_feature_enabled"

        var name: String { rawValue }

        var valueType: any RemoteValue.Type {
            switch self {
            case .paywallType: Macro.PaywallType.self
            case .aFeatureEnabled: Macro.AFeatureEnabled.self
            }
        }
    }

    /// A value with a baseline that implements all by itself, as the description shows for those who use no macros.
    private struct InFull: CaseIterable, BaselineStringRemoteValue {
        enum Variant: String, CaseIterable, StringInitializableRemoteValue {
            case a, b
        }

        static let `default` = InFull(baseline: true, variant: .b)
        static var allCases: [InFull] { Variant.allCases.map { InFull(baseline: false, variant: $0) } }
        let baseline: Bool
        let variant: Variant
        var name: String { "variant \(variant.name)" }

        init(baseline: Bool, variant: Variant) {
            (self.baseline, self.variant) = (baseline, variant)
        }

        init?(name: String) {
            let parts = name.split(separator: "_", maxSplits: 1)
            guard let first = parts.first, let variant = Variant(name: String(first)) else { return nil }
            self.init(baseline: parts.count > 1, variant: variant)
        }
    }

    @Test func `What a type implements by itself is used`() {
        #expect(InFull.default == InFull(baseline: true, variant: .b))
        #expect(InFull.parse("a_baseline") == InFull(baseline: true, variant: .a) && InFull.parse("c") == nil)
        #expect(InFull.parse("a")?.name == "variant a" && InFull.allCases.count == 2)
    }

    @Test func `Fetch, audit, read`() async throws {
        let service = RemoteConfigService(keeper: InMemoryRemoteConfigKeeper(["paywall_type": "c"]))
        try await service.fetch()
        service.getValues(for: Key.allCases)
        let type: Macro.PaywallType = service.remoteValue(for: Key.paywallType)
        let feature: Macro.AFeatureEnabled = service.remoteValue(for: Key.aFeatureEnabled)
        #expect(type == .c && feature == .disabled)
    }
}

/// The examples of Acoustic's documentation of attributes.
struct AcousticExample {
    @Test func `Observers tell success and error of updates and deletions apart`() async throws {
        let test = try Client()
        try await test.client.initialize(user: HoldfastUser(id: "ada"))
        let queue = AttributeService(client: test.client)
        let seen = Mutex<[String]>([])
        let observer = queue.addObserver { outcome in
            let result = if case .success = outcome.result { "success" } else { "error" }
            seen.withLock { $0.append("\(outcome.operation) \(result)") }
        }
        try queue.update(attributes: ["hobby": "movies"])
        try queue.delete(attributes: ["hobby"])
        try await test.client.flush()
        test.server.respond { call throws(HoldfastError) in
            guard call.path == "/v1/profiles/attributes" else { return Client.usual(call) }
            let errors = (1...call.lines.count).map { #"{"line":\#($0),"detail":"unknown"}"# }.joined(separator: ",")
            return .json(#"{"imported":0,"refused":\#(call.lines.count),"errors":[\#(errors)]}"#)
        }
        try queue.update(attributes: ["wrong": 1])
        try queue.delete(attributes: ["wrong"])
        try await test.client.flush()
        #expect(seen.withLock { $0 } == ["update success", "delete success", "update error", "delete error"])
        observer.cancel()
        test.client.destroy()
    }

    @Test func `Attributes of native types are updated and deleted`() async throws {
        let test = try Client()
        try await test.client.initialize(user: HoldfastUser(id: "ada"))
        let queue = AttributeService(client: test.client)
        let attributes: [String: Any] = [
            "hobby": "movies", "age": 40, "getsCatalogue": true, "lastUpdate": Date(timeIntervalSince1970: 0),
        ]
        try queue.update(attributes: attributes)
        try queue.delete(attributes: ["hobby", "getsCatalogue"])
        try await test.client.flush()
        let lines = try test.server.calls("/v1/profiles/attributes")[0].lines.map {
            try JSONDecoder().decode(HoldfastValue.self, from: Data($0.utf8))
        }
        #expect(
            lines == [
                [
                    "user_id": "ada",
                    "attributes": [
                        "hobby": "movies", "age": 40, "getsCatalogue": true, "lastUpdate": "1970-01-01T00:00:00.000Z",
                    ],
                ], ["user_id": "ada", "remove": ["hobby", "getsCatalogue"]],
            ])
    }
}

import Foundation
import HoldfastClient
import Synchronization
import Testing

/// The examples of the five public descriptions, one after the other as an app would have them, against the built server.
/// Those that need no server are in `DescriptionTests.swift`; see the article Coverage.
@Suite(.timeLimit(.minutes(5))) struct DescriptionsOnServer {
    private let directory: TemporaryDirectory
    private let server: RealServer

    init() async throws {
        directory = try TemporaryDirectory()
        server = try await RealServer()
    }

    private func define(_ definitions: KeyValuePairs<String, String>) async throws {
        for (target, body) in definitions { try await server.request("PUT", "/v1/\(target)", body) }
    }

    private func json(_ target: String) async throws -> HoldfastValue {
        try await JSONDecoder().decode(HoldfastValue.self, from: Data(server.request("GET", target).utf8))
    }

    private struct Theme: Codable, Equatable {
        var dark: Bool
    }

    @Test func `Flags: from the configuration to the next user`() async throws {
        try await define([
            "flags/show_new_feature":
                #"{"type":"boolean","tags":["ios"],"variations":[{"key":"on","value":true},{"key":"off","value":false}],"#
                + #""rules":[{"audience":{"type":"custom_attribute","name":"country","value":"japan"},"variation":"on"}],"otherwise":"off"}"#,
            "flags/title":
                #"{"type":"string","tags":["ios"],"variations":[{"key":"a","value":"Hello"}],"otherwise":"a"}"#,
            "flags/columns": #"{"type":"integer","tags":["ios"],"variations":[{"key":"a","value":3}],"otherwise":"a"}"#,
            "flags/ratio": #"{"type":"double","tags":["ios"],"variations":[{"key":"a","value":0.5}],"otherwise":"a"}"#,
            "flags/theme":
                #"{"type":"json","tags":["ios"],"variations":[{"key":"a","value":{"dark":true}}],"otherwise":"a"}"#,
            "flags/of_the_web": #"{"type":"boolean","tags":["web"]}"#,
            "experiments/paywall": #"{"variations":["control","annual"]}"#,
            "flags/paywall": #"{"tags":["ios"]}"#,
        ])

        var configuration = HoldfastConfiguration(
            endpoint: try server.endpoint, token: "YOUR_TOKEN", directory: directory.url)
        configuration.tags = ["ios"]
        configuration.appVersion = "1.0.0"
        configuration.pollingInterval = .seconds(600)
        configuration.backgroundPollingInterval = .seconds(1_800)
        configuration.flushInterval = .seconds(60)
        configuration.batchSize = 50
        configuration.listensToChanges = false
        let client = try HoldfastClient(configuration: configuration)
        let attributes = [
            "app_version": "1.0.0", "os_version": "11.0.0", "device_model": "iphone-12", "language": "english",
        ]
        let user = HoldfastUser(id: "USER_ID", attributes: attributes)
        let freshness = try await client.initialize(user: user, timeout: .seconds(60))
        #expect(freshness == .server && freshness.error == nil)

        let showNewFeature = client.boolVariation(flagKey: "show_new_feature", defaultValue: true)
        #expect(!showNewFeature)
        #expect(client.boolVariation(flagKey: "of_the_web", defaultValue: true), "not of the tag, so unknown here")
        #expect(client.stringVariation(flagKey: "title", defaultValue: "") == "Hello")
        #expect(client.intVariation(flagKey: "columns", defaultValue: 1) == 3)
        #expect(client.doubleVariation(flagKey: "ratio", defaultValue: 0) == 0.5)
        #expect(client.jsonVariation(flagKey: "theme", defaultValue: Theme(dark: false)) == Theme(dark: true))

        let (changes, continuation) = AsyncStream.makeStream(of: Set<String>.self)
        let key = client.addMainActorUpdateListener { flagKeys in continuation.yield(flagKeys) }
        #expect(client.currentUser == user)
        var changed = attributes
        changed["app_version"] = "1.0.1"
        changed["country"] = "japan"
        client.updateUserAttributes(changed)
        #expect(client.currentUser == HoldfastUser(id: "USER_ID", attributes: changed))
        let fetched = await withCheckedContinuation { done in
            client.fetchEvaluations(timeout: .seconds(60)) { error in done.resume(returning: error) }
        }
        #expect(fetched == nil)
        #expect(client.boolVariation(flagKey: "show_new_feature", defaultValue: false))
        for await flagKeys in changes {
            #expect(flagKeys.contains("show_new_feature"))
            break
        }
        client.removeUpdateListener(key)
        client.clearUpdateListeners()

        let details = try #require(client.evaluationDetails(flagKey: "show_new_feature"))
        #expect(details.flagKey == "show_new_feature" && details.flagVersion > 0 && details.userID == "USER_ID")
        #expect(details.variationKey == "on" && details.variationValue == true && !details.id.isEmpty)
        #expect(client.evaluationDetails(flagKey: "YOUR_FEATURE_FLAG_ID") == nil)

        let group = client.stringVariation(flagKey: "paywall", defaultValue: "")
        #expect(["control", "annual"].contains(group))
        client.track(goalID: "purchase", value: 10.50)
        client.track(goalID: "purchase")
        let flushed = await withCheckedContinuation { done in
            client.flush { error in done.resume(returning: error) }
        }
        #expect(flushed == nil)
        let results = try await json("/v1/experiments/paywall/results?goal=purchase")
        let found = try #require(results["variations"]?.arrayValue?.first { $0["variation_key"]?.stringValue == group })
        #expect(found["users"] == 1 && found["converted"] == 1 && found["events"] == 2)
        #expect(found["value"]?["sum"]?.doubleValue == 10.5 && found["value"]?["mean"]?.doubleValue == 10.5)

        try await client.flush()
        #expect(
            try await client.initialize(user: HoldfastUser(id: "ANOTHER_ID"), timeout: .seconds(60)) == .server)
        #expect(!client.boolVariation(flagKey: "show_new_feature", defaultValue: true))
        client.destroy()
        await #expect(throws: HoldfastError.destroyed) { try await client.fetchEvaluations() }
    }

    @Test func `Split tests: the color of a button, which the server counts`() async throws {
        try await define(["experiments/button_color": #"{"variations":["red","blue","dark_gray"]}"#])
        let storage = FileSplitTestStorage(file: directory.url.appending(path: "groups.json"))
        let analytics = RecordingAnalytics()
        var colors: Set<String> = []
        // Each start of the app has its own client and service.
        for _ in 0..<3 {
            let client = try server.client(in: directory)
            try await client.initializeAnonymously(timeout: .seconds(60))
            let splitTestingService = SplitTestService(
                client: client, storage: storage, analytics: analytics, timeLimit: .seconds(60))
            let buttonSplitTest = await splitTestingService.fetchSplitTest(ButtonColorSplitTest.self)
            #expect(buttonSplitTest.source == .server && buttonSplitTest.error == nil)
            colors.insert(buttonSplitTest.group.color)
            buttonSplitTest.hit()
            try await client.flush()
            client.destroy()
        }
        #expect(colors.count == 1)
        #expect(analytics.calls.count == 1 && analytics.calls[0].hasPrefix("split_test-button_color="))
        #expect(try await server.exposures().count == 1)
        let results = try await json("/v1/experiments/button_color/results?goal=purchase")
        #expect(results["variations"]?.arrayValue?.count == 3 && results["users"]?["counted"] == 1)
    }

    private enum Key: String, CaseIterable, RemoteKey {
        case paywallType = "paywall_type"
        case aFeatureEnabled = "a_feature_enabled"
        case missing

        var name: String { rawValue }

        var valueType: any RemoteValue.Type {
            switch self {
            case .paywallType, .missing: Macro.PaywallType.self
            case .aFeatureEnabled: Macro.AFeatureEnabled.self
            }
        }
    }

    @Test func `Remote values: fetch, audit, read, and follow a change`() async throws {
        try await define([
            "flags/paywall_type":
                #"{"type":"string","variations":[{"key":"b","value":"b"},{"key":"c","value":"c"}],"otherwise":"c"}"#,
            "flags/a_feature_enabled":
                #"{"type":"boolean","variations":[{"key":"on","value":true}],"otherwise":"on"}"#,
        ])
        let client = try server.client(in: directory) { $0.listensToChanges = false }
        let keeper = HoldfastRemoteConfigKeeper(client: client)
        let service = RecordingService(keeper: keeper)
        let before: Macro.PaywallType = service.remoteValue(for: Key.paywallType)
        #expect(before == .a)
        try await client.initialize(user: HoldfastUser(id: "ada"), timeout: .seconds(60))
        try await service.fetch()
        service.getValues(for: Key.allCases)
        #expect(service.calls.contains("missing missing") && service.calls.contains(#"all missing ["missing"]"#))
        let type: Macro.PaywallType = service.remoteValue(for: Key.paywallType)
        let feature: Macro.AFeatureEnabled = service.remoteValue(for: Key.aFeatureEnabled)
        #expect(type == .c && feature == .enabled)
        var values = service.remoteValues(for: Key.paywallType, as: Macro.PaywallType.self).makeAsyncIterator()
        #expect(await values.next() == .c)
        try await define(["flags/paywall_type?moves=allow": #"{"otherwise":"b"}"#])
        try await service.fetch()
        #expect(await values.next() == .b)
        client.destroy()
    }

    @Test func `Profiles: a service looks up and saves, and an entry decides instead of the bucketing`() async throws {
        try await server.putDatafile(revision: 1, controlEnd: 10_000)
        let client = try server.client(in: directory) { $0.listensToChanges = false }
        let userProfileService = UserProfileService(client: client)
        #expect(userProfileService.lookup(userID: "ada") == nil)
        userProfileService.save(userProfile: UserProfile(userID: "ada", experimentBucketMap: ["7001": "70012"]))
        try await client.flush()
        // Another server or device.
        let other = UserProfileService(client: client)
        try await other.load(userIDs: ["ada"])
        #expect(other.lookup(userID: "ada")?.experimentBucketMap == ["7001": "70012"])
        for (userID, variation) in [("ada", "new"), ("bob", "control")] {
            try await client.initialize(
                user: HoldfastUser(id: userID, attributes: ["country": "de"]), timeout: .seconds(60))
            #expect(client.evaluationDetails(flagKey: "checkout")?.variationKey == variation)
        }
        client.destroy()
    }

    @Test func `Attributes: native types, deletions, outcomes, and the same from other platforms`() async throws {
        try await define([
            "attributes/hobby": #"{"type":"string"}"#, "attributes/age": #"{"type":"number"}"#,
            "attributes/getsCatalogue": #"{"type":"boolean"}"#, "attributes/lastUpdate": #"{"type":"timestamp"}"#,
            "attributes/favoritePlayer": #"{"type":"string"}"#,
        ])
        func stored(_ userID: String) async throws -> HoldfastValue? {
            try await json("/v1/profiles/\(userID)/attributes")["attributes"]
        }
        let client = try server.client(in: directory) { $0.listensToChanges = false }
        try await client.initialize(user: HoldfastUser(id: "ada"), timeout: .seconds(60))
        let queue = AttributeService(client: client)
        let seen = Mutex<[String]>([])
        let observer = queue.addObserver { outcome in
            let result = if case .success = outcome.result { "success" } else { "error" }
            seen.withLock { $0.append("\(outcome.operation) \(result)") }
        }
        let attributes: [String: Any] = [
            "hobby": "movies", "age": 40, "getsCatalogue": true, "lastUpdate": Date(timeIntervalSince1970: 0),
        ]
        try queue.update(attributes: attributes)
        try await client.flush()
        #expect(
            try await stored("ada") == [
                "hobby": "movies", "age": 40, "getsCatalogue": true, "lastUpdate": "1970-01-01T00:00:00.000Z",
            ])
        try queue.delete(attributes: ["hobby", "getsCatalogue"])
        try queue.update(attributes: ["favoritePlayer": "Lionel Messi"])
        try queue.update(attributes: ["age": "forty"])
        try queue.delete(attributes: ["unheard of"])
        try await client.flush()
        #expect(
            try await stored("ada") == [
                "age": 40, "lastUpdate": "1970-01-01T00:00:00.000Z", "favoritePlayer": "Lionel Messi",
            ])
        #expect(
            seen.withLock { $0 }.sorted() == [
                "delete error", "delete success", "update error", "update success", "update success",
            ])
        observer.cancel()

        // Another device of the same user, on a platform that has no library: it sends a list, or one attribute at a time.
        try await server.request(
            "POST", "/v1/profiles/attributes",
            #"{"user_id":"ada","attributes":{"hobby":"music","getsCatalogue":false}}"# + "\n"
                + #"{"user_id":"ada","remove":["favoritePlayer"]}"# + "\n")
        try await server.request("PATCH", "/v1/profiles/ada/attributes", #"{"age":41}"#)
        #expect(
            try await stored("ada") == [
                "age": 41, "lastUpdate": "1970-01-01T00:00:00.000Z", "hobby": "music", "getsCatalogue": false,
            ])
        client.destroy()
    }
}

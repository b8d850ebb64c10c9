import FirebaseRemoteConfig
import Foundation
import HoldfastClient
import Synchronization
import Testing

// The code of the article RemoteValues that needs Firebase; ArticleTests compares the two.

final class FirebaseRemoteConfigKeeper: RemoteConfigKeeper, @unchecked Sendable {
    private let config = RemoteConfig.remoteConfig()  // thread-safe

    func fetch() async throws { _ = try await config.fetchAndActivate() }

    func value(for name: String) -> HoldfastValue? {
        let value = config.configValue(forKey: name)
        return value.source == .remote ? .string(String(decoding: value.dataValue, as: UTF8.self)) : nil
    }

    func observe(_ listener: @escaping @Sendable () -> Void) -> ListenerToken {
        let registration = config.addOnConfigUpdateListener { [config] _, error in
            guard error == nil else { return }
            Task {
                _ = try? await config.activate()
                listener()
            }
        }
        return ListenerToken { registration.remove() }
    }
}

class FirebaseRemoteConfigService: RemoteConfigService, @unchecked Sendable {
    init() { super.init(keeper: FirebaseRemoteConfigKeeper()) }
}

private enum Key: String, CaseIterable, RemoteKey {
    case paywallType = "paywall_type"
    case aFeatureEnabled = "a_feature_enabled"

    var valueType: any RemoteValue.Type {
        switch self {
        case .paywallType: PaywallType.self
        case .aFeatureEnabled: AFeatureEnabled.self
        }
    }
}

private enum PaywallType: String, CaseIterable, StringInitializableRemoteValue { case a, b, c }

private enum AFeatureEnabled: CaseIterable, BoolEnumRemoteValue { case enabled, disabled }

private final class AppService: FirebaseRemoteConfigService, @unchecked Sendable {
    let log = Mutex<[String]>([])

    override func trackKeyNotFound(_ key: any RemoteKey) { log.withLock { $0.append("no \(key.name)") } }
    override func trackIncorrectValue(_ value: HoldfastValue, for key: any RemoteKey) {
        log.withLock { $0.append("wrong \(key.name)") }
    }
}

@Suite(.serialized, .timeLimit(.minutes(1))) struct FirebaseExampleTests {
    @Test func `Values are fetched, audited, kept after a failure, and follow what Firebase announces`() async throws {
        let config = RemoteConfig.remoteConfig()
        config.publish(["paywall_type": "b"])
        let service = AppService()
        #expect(service.remoteValue(for: Key.paywallType) as PaywallType == .a)
        try await service.fetch()
        #expect(service.remoteValue(for: Key.paywallType) as PaywallType == .b)
        service.getValues(for: Key.allCases)
        #expect(service.log.withLock { $0 } == ["no a_feature_enabled"])

        var values = service.remoteValues(for: Key.aFeatureEnabled, as: AFeatureEnabled.self).makeAsyncIterator()
        #expect(await values.next() == .disabled)
        config.publish(["paywall_type": "x", "a_feature_enabled": "true"], isReachable: false)
        #expect(await values.next() == .enabled)
        await #expect(throws: URLError.self) { try await service.fetch() }
        #expect(service.remoteValue(for: Key.aFeatureEnabled) as AFeatureEnabled == .enabled)
        service.getValues(for: Key.allCases)
        #expect(service.log.withLock { $0 }.last == "wrong paywall_type")
    }
}

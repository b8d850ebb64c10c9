import FirebaseRemoteConfig
import Foundation
import HoldfastClient

// The code of the article RemoteValues that needs Firebase; ArticleTests compares the two.

final class FirebaseRemoteConfigKeeper: RemoteConfigKeeper, @unchecked Sendable {
    private let config = RemoteConfig.remoteConfig()  // thread-safe

    func fetch() async throws { _ = try await config.fetchAndActivate() }

    func value(for name: String) -> HoldfastValue? {
        let value = config.configValue(forKey: name)
        return value.source == .remote ? .string(String(decoding: value.dataValue, as: UTF8.self)) : nil
    }
}

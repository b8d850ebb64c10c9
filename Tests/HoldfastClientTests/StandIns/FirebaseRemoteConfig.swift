public import Foundation

// What the articles use of Firebase Remote Config, as its documentation declares it.

open class RemoteConfig: NSObject {
    public class func remoteConfig() -> RemoteConfig { RemoteConfig() }

    open func fetchAndActivate() async throws -> RemoteConfigFetchAndActivateStatus { .successFetchedFromRemote }

    open func configValue(forKey key: String?) -> RemoteConfigValue { RemoteConfigValue() }
}

open class RemoteConfigValue: NSObject {
    open var dataValue: Data { Data() }
    open var source: RemoteConfigSource { .remote }
}

public enum RemoteConfigSource: Int, Sendable {
    case remote, `default`, `static`
}

public enum RemoteConfigFetchAndActivateStatus: Int, Sendable {
    case successFetchedFromRemote, successUsingPreFetchedData, error
}

public import Foundation

// What the examples use of Firebase Remote Config, as its documentation declares it, with values that a test sets.

open class RemoteConfig: NSObject, @unchecked Sendable {
    // Safe: the state is behind a lock.
    private static let shared = RemoteConfig()
    private let lock = NSLock()
    private var active: [String: String] = [:]
    private var published: [String: String] = [:]
    private var isReachable = true
    private var listeners: [UUID: (RemoteConfigUpdate?, (any Error)?) -> Void] = [:]

    public class func remoteConfig() -> RemoteConfig { shared }

    /// For tests: the app's project has these values now, and tells its listeners.
    public func publish(_ values: [String: String], isReachable: Bool = true) {
        let told = lock.withLock {
            published = values
            self.isReachable = isReachable
            return Array(listeners.values)
        }
        for listener in told { listener(RemoteConfigUpdate(updatedKeys: Set(values.keys)), nil) }
    }

    open func fetchAndActivate() async throws -> RemoteConfigFetchAndActivateStatus {
        try lock.withLock {
            guard isReachable else { throw URLError(.notConnectedToInternet) }
            active = published
            return .successFetchedFromRemote
        }
    }

    open func activate() async throws -> Bool {
        lock.withLock {
            defer { active = published }
            return active != published
        }
    }

    open func configValue(forKey key: String?) -> RemoteConfigValue {
        RemoteConfigValue(lock.withLock { key.flatMap { active[$0] } })
    }

    open func addOnConfigUpdateListener(
        remoteConfigUpdateCompletion listener: @escaping (RemoteConfigUpdate?, (any Error)?) -> Void
    ) -> ConfigUpdateListenerRegistration {
        let id = UUID()
        lock.withLock { listeners[id] = listener }
        return ConfigUpdateListenerRegistration { [weak self] in
            guard let self else { return }
            self.lock.withLock { self.listeners[id] = nil }
        }
    }
}

open class RemoteConfigValue: NSObject {
    private let text: String?

    init(_ text: String?) { self.text = text }

    open var dataValue: Data { Data((text ?? "").utf8) }
    open var source: RemoteConfigSource { text == nil ? .static : .remote }
}

public final class RemoteConfigUpdate: NSObject {
    public let updatedKeys: Set<String>

    init(updatedKeys: Set<String>) { self.updatedKeys = updatedKeys }
}

public final class ConfigUpdateListenerRegistration: NSObject, @unchecked Sendable {
    // Safe: the closure locks.
    private let end: () -> Void

    init(_ end: @escaping () -> Void) { self.end = end }

    public func remove() { end() }
}

public enum RemoteConfigSource: Int, Sendable {
    case remote, `default`, `static`
}

public enum RemoteConfigFetchAndActivateStatus: Int, Sendable {
    case successFetchedFromRemote, successUsingPreFetchedData, error
}

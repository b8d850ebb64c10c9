import Synchronization

/// Keeps groups until the process ends: for tests, and where each run is to be a new user.
public final class InMemorySplitTestStorage: SplitTestStorage {
    private let values = Mutex<[String: String]>([:])

    public init() {}

    public func value(forKey key: String) async throws -> String? {
        values.withLock { $0[key] }
    }

    public func set(_ value: String?, forKey key: String) async throws {
        values.withLock { $0[key] = value }
    }
}

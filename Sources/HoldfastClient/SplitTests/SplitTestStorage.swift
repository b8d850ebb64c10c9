/// Where groups are kept between two runs: the app's choice. ``FileSplitTestStorage`` keeps them in a file,
/// ``InMemorySplitTestStorage`` until the process ends. One over `UserDefaults` takes two lines.
///
/// Keys are ASCII. Calls for one key come one after another.
public protocol SplitTestStorage: Sendable {
    /// What was last set for this key; nil if nothing was.
    func value(forKey key: String) async throws -> String?

    /// Keeps a value, or removes it with nil. When this returns, the value lasts as long as the storage promises.
    func set(_ value: String?, forKey key: String) async throws
}

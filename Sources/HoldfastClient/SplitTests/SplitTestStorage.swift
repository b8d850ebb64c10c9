public import Foundation

/// Keeps groups between two runs of the app, as ``UserDefaultsSplitTestStorage`` and ``FileSplitTestStorage`` do. A
/// Keychain keeps groups even after the app was deleted; see <doc:SplitTests>.
///
/// Calls may come from any thread, but not concurrently.
public protocol SplitTestStorage: Sendable {
    /// - Throws: if the storage cannot be read. A missing value is `nil`.
    func string(forKey key: String) throws -> String?

    /// Stores a value, or removes it with `nil`.
    func set(_ value: String?, forKey key: String) throws
}

/// Keeps groups in `UserDefaults`.
public struct UserDefaultsSplitTestStorage: SplitTestStorage, @unchecked Sendable {
    // Safe: UserDefaults is documented to be thread-safe.
    private let defaults: UserDefaults

    public init(_ defaults: UserDefaults = .standard) {
        self.defaults = defaults
    }

    public func string(forKey key: String) -> String? {
        defaults.string(forKey: key)
    }

    public func set(_ value: String?, forKey key: String) {
        if let value { defaults.set(value, forKey: key) } else { defaults.removeObject(forKey: key) }
        #if !canImport(Darwin)
            // On other systems than Apple's only this call writes the file.
            defaults.synchronize()
        #endif
    }
}

/// Keeps groups in a JSON file, which is replaced atomically. Only one process at a time may use it. For the few users
/// of an app; a server app should use a database.
public final class FileSplitTestStorage: SplitTestStorage {
    private let file: URL
    /// The content of the file; `nil` until it is read.
    private let values = Locked<[String: String]?>(nil)

    /// - Parameter file: created with its directory when the first value is stored.
    public init(file: URL) {
        self.file = file
    }

    public func string(forKey key: String) throws -> String? {
        try values.withLock { values in
            let loaded = try values ?? load()
            values = loaded
            return loaded[key]
        }
    }

    public func set(_ value: String?, forKey key: String) throws {
        try values.withLock { values in
            var changed = try values ?? load()
            changed[key] = value
            try FileManager.default.createDirectory(
                at: file.deletingLastPathComponent(), withIntermediateDirectories: true)
            try JSONEncoder().encode(changed).write(to: file, options: .atomic)
            values = changed
        }
    }

    private func load() throws -> [String: String] {
        guard FileManager.default.fileExists(atPath: file.path) else { return [:] }
        return try JSONDecoder().decode([String: String].self, from: Data(contentsOf: file))
    }
}

/// Keeps groups until the process ends, for tests.
public final class InMemorySplitTestStorage: SplitTestStorage {
    private let values: Locked<[String: String]>

    public init(_ values: [String: String] = [:]) {
        self.values = Locked(values)
    }

    public func string(forKey key: String) -> String? {
        values.withLock { $0[key] }
    }

    public func set(_ value: String?, forKey key: String) {
        values.withLock { $0[key] = value }
    }
}

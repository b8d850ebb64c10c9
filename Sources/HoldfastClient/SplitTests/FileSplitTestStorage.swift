public import Foundation

/// Keeps groups in one file of JSON. The file is replaced as a whole, so that a process killed in the middle leaves
/// the old content or the new. It is read and written whole: right for the few users of an app, not for those of a server.
public actor FileSplitTestStorage: SplitTestStorage {
    private let file: URL
    private var values: [String: String]?

    /// - Parameter file: made, with its directory, by the first value that is kept. One process at a time uses it.
    public init(file: URL) {
        self.file = file
    }

    public func value(forKey key: String) throws -> String? {
        try load()[key]
    }

    public func set(_ value: String?, forKey key: String) throws {
        var changed = try load()
        changed[key] = value
        try FileManager.default.createDirectory(at: file.deletingLastPathComponent(), withIntermediateDirectories: true)
        try JSONEncoder().encode(changed).write(to: file, options: .atomic)
        values = changed
    }

    private func load() throws -> [String: String] {
        if let values { return values }
        var loaded: [String: String] = [:]
        if FileManager.default.fileExists(atPath: file.path) {
            loaded = try JSONDecoder().decode([String: String].self, from: Data(contentsOf: file))
        }
        values = loaded
        return loaded
    }
}

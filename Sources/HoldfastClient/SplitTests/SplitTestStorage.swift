public import Foundation
import Synchronization

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

/// What is kept of one user's part in one test.
struct SplitTestRecord: Codable, Equatable {
    let assignment: SplitTestAssignment

    /// Whether the exposure to this assignment has been reported.
    var isExposed = false

    init(_ assignment: SplitTestAssignment) {
        self.assignment = assignment
    }

    /// Reads what ``text()`` wrote; nil for anything else.
    init?(text: String) {
        guard let record = try? JSONDecoder().decode(SplitTestRecord.self, from: Data(text.utf8)) else { return nil }
        self = record
    }

    func text() throws -> String {
        String(decoding: try JSONEncoder().encode(self), as: UTF8.self)
    }

    /// The key under which a storage has a user's record: ASCII, and different for any two users and tests.
    static func storageKey(userID: String, testKey: String) -> String {
        "holdfast/split-test/\(escaped(testKey))/\(escaped(userID))"
    }

    private static func escaped(_ text: String) -> String {
        var result = ""
        for byte in text.utf8 {
            switch byte {
            case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "_"):
                result.unicodeScalars.append(Unicode.Scalar(byte))
            default:
                result += "%" + (byte < 16 ? "0" : "") + String(byte, radix: 16)
            }
        }
        return result
    }
}

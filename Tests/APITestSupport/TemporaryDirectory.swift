import Foundation
import Synchronization

/// A directory for one test, removed with its last reference.
public final class TemporaryDirectory: Sendable {
    public let path: String
    /// What belongs to the directory by name, and lives as long.
    let attachments = Mutex<[String: any Sendable]>([:])

    /// A file system in memory, if it has room: a commit on a disk takes milliseconds, and a test makes many.
    private static let memory: String? = {
        var status = statvfs()
        let path = "/dev/shm"
        guard statvfs(path, &status) == 0, access(path, W_OK) == 0 else { return nil }
        return UInt64(status.f_bavail) * UInt64(status.f_frsize) >= 1 << 30 ? path : nil
    }()

    /// - Parameter inMemory: whether the files need no disk.
    public init(inMemory: Bool = false) throws {
        let parent = inMemory ? Self.memory ?? NSTemporaryDirectory() : NSTemporaryDirectory()
        path = parent + "/holdfast-" + UUID().uuidString
        try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
    }

    deinit {
        try? FileManager.default.removeItem(atPath: path)
    }

    /// Returns the path of a file in the directory.
    public func file(_ name: String) -> String {
        "\(path)/\(name)"
    }

    /// Writes a file and returns its path.
    public func write(_ text: String, to name: String, mode: Int = 0o600) throws -> String {
        let path = file(name)
        try text.write(toFile: path, atomically: false, encoding: .utf8)
        try FileManager.default.setAttributes([.posixPermissions: mode], ofItemAtPath: path)
        return path
    }
}

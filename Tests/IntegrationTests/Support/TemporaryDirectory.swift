import Foundation

/// A directory of one test's own, removed when the test lets go of it.
final class TemporaryDirectory: Sendable {
    let path: String

    init() throws {
        path = NSTemporaryDirectory() + "/holdfast-" + UUID().uuidString
        try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
    }

    deinit {
        try? FileManager.default.removeItem(atPath: path)
    }

    /// The path of something in the directory.
    func file(_ name: String) -> String {
        "\(path)/\(name)"
    }

    /// Writes a file and returns its path.
    func write(_ text: String, to name: String, mode: Int = 0o600) throws -> String {
        let path = file(name)
        try text.write(toFile: path, atomically: false, encoding: .utf8)
        try FileManager.default.setAttributes([.posixPermissions: mode], ofItemAtPath: path)
        return path
    }
}

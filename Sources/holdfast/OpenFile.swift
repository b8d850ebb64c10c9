import FoundationEssentials
import Glibc

/// A file that is open for reading or for appending, or a standard stream. Errors have only the reason, because the
/// caller knows what the file is and adds its name.
final class OpenFile: Sendable {
    static let standardInput = OpenFile(standard: STDIN_FILENO)
    static let standardOutput = OpenFile(standard: STDOUT_FILENO)
    private static let standardError = OpenFile(standard: STDERR_FILENO)

    private let descriptor: Int32

    private init(standard descriptor: Int32) {
        self.descriptor = descriptor
    }

    /// Opens a file for reading.
    init(path: String) throws(Failure) {
        descriptor = open(path, O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else { throw Self.failure() }
    }

    /// Opens a file for appending, and creates it if it does not exist.
    init(appendingTo path: String) throws(Failure) {
        descriptor = open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0o600)
        guard descriptor >= 0 else { throw Self.failure() }
    }

    deinit {
        // The standard streams stay open.
        if descriptor > STDERR_FILENO { close(descriptor) }
    }

    /// Returns the content of a file.
    static func content(of path: String) throws(Failure) -> [UInt8] {
        try OpenFile(path: path).readToEnd()
    }

    /// Writes to standard error. Errors are ignored.
    static func printError(_ text: String) {
        try? standardError.write(Array(text.utf8))
    }

    /// Returns the status of the file (fstat(2)).
    func status() throws(Failure) -> stat {
        var status = stat()
        guard fstat(descriptor, &status) == 0 else { throw Self.failure() }
        return status
    }

    /// Reads the next piece, which is empty at the end of the file.
    func read(upToCount count: Int) throws(Failure) -> [UInt8] {
        var result = 0
        let piece = [UInt8](unsafeUninitializedCapacity: count) { buffer, length in
            repeat { result = Glibc.read(descriptor, buffer.baseAddress, count) } while result < 0 && errno == EINTR
            length = max(0, result)
        }
        guard result >= 0 else { throw Self.failure() }
        return piece
    }

    /// Reads the rest of the file.
    func readToEnd() throws(Failure) -> [UInt8] {
        var content: [UInt8] = []
        while true {
            let piece = try read(upToCount: 256 * 1024)
            if piece.isEmpty { return content }
            content += piece
        }
    }

    /// Writes all bytes.
    func write(_ bytes: [UInt8]) throws(Failure) {
        var rest = bytes[...]
        while !rest.isEmpty {
            let count = rest.withUnsafeBytes { Glibc.write(descriptor, $0.baseAddress, $0.count) }
            if count < 0, errno == EINTR { continue }
            guard count > 0 else { throw Self.failure() }
            rest = rest.dropFirst(count)
        }
    }

    /// Cuts the file to a length in bytes.
    func truncate(to length: Int) throws(Failure) {
        guard ftruncate(descriptor, off_t(length)) == 0 else { throw Self.failure() }
    }

    /// Blocks until all written bytes are durable. For a directory, blocks until its entries are durable.
    func synchronize() throws(Failure) {
        guard fsync(descriptor) == 0 else { throw Self.failure() }
    }

    /// Locks the file until the process ends.
    ///
    /// - Returns: `false` if another process has the lock.
    func lock() -> Bool {
        flock(descriptor, LOCK_EX | LOCK_NB) == 0
    }

    /// Renames a file. A file that has the target's name is replaced atomically.
    static func rename(_ path: String, to target: String) throws(Failure) {
        guard Glibc.rename(path, target) == 0 else { throw failure() }
    }

    /// Returns the error of the system call that has just failed.
    private static func failure() -> Failure {
        Failure(String(cString: strerror(errno)))
    }
}

// MARK: - Paths

extension OpenFile {
    /// Replaces the content of a file atomically: after an error the file is unchanged.
    static func write(_ text: String, to path: String) throws {
        do {
            try Data(text.utf8).write(to: URL(fileURLWithPath: path), options: .atomic)
        } catch {
            throw Failure("\(path) cannot be written: \(error)")
        }
    }

    /// Returns the path of the directory that has a file.
    static func directory(of path: String) -> String {
        let parent = path.split(separator: "/", omittingEmptySubsequences: false).dropLast().joined(separator: "/")
        guard parent.isEmpty else { return parent }
        return path.hasPrefix("/") ? "/" : "."
    }
}

extension FileManager {
    /// Whether a path is that of a directory.
    func directoryExists(atPath path: String) -> Bool {
        var isDirectory = false
        return fileExists(atPath: path, isDirectory: &isDirectory) && isDirectory
    }
}

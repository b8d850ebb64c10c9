#if canImport(Darwin)
    import Darwin
#elseif canImport(Android)
    import Android
#elseif canImport(Musl)
    import Musl
#else
    import Glibc
#endif

/// An open file, which is closed when the object is released. Reads and writes are repeated after `EINTR`. Errors
/// are ``HoldfastError/storage(_:)`` with the system call and the path.
final class FileDescriptor: Sendable {
    private let number: Int32
    private let path: String

    /// Opens a file for reading and appending; creates it with mode 0600 if it is missing.
    init(path: String) throws(HoldfastError) {
        self.path = path
        number = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0o600)
        guard number >= 0 else { throw Self.failure("open", path) }
    }

    deinit {
        close(number)
    }

    /// Takes an exclusive lock without waiting. It lasts until the file is closed, at the latest when the process ends.
    ///
    /// - Returns: whether the lock was free.
    func lock() -> Bool {
        flock(number, LOCK_EX | LOCK_NB) == 0
    }

    /// Releases the lock. Closing the file would not suffice: a child process that is being started may have inherited
    /// it.
    func unlock() {
        flock(number, LOCK_UN)
    }

    /// Writes all bytes at the end of the file.
    func append(_ bytes: [UInt8]) throws(HoldfastError) {
        var rest = bytes[...]
        while !rest.isEmpty {
            let count = rest.withUnsafeBytes { write(number, $0.baseAddress, $0.count) }
            if count < 0, errno == EINTR { continue }
            guard count > 0 else { throw Self.failure("write", path) }
            rest = rest.dropFirst(count)
        }
    }

    /// Returns the contents from an offset on.
    func contents(from offset: Int = 0, atMost limit: Int = .max) throws(HoldfastError) -> [UInt8] {
        guard lseek(number, off_t(offset), SEEK_SET) >= 0 else { throw Self.failure("lseek", path) }
        var all: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: min(65_536, limit))
        while true {
            let count = read(number, &buffer, min(buffer.count, limit - all.count))
            if count < 0, errno == EINTR { continue }
            guard count >= 0 else { throw Self.failure("read", path) }
            if count == 0 { return all }
            all += buffer[..<count]
        }
    }

    /// Cuts the file to a length in bytes.
    func truncate(to length: Int) throws(HoldfastError) {
        guard ftruncate(number, off_t(length)) == 0 else { throw Self.failure("ftruncate", path) }
    }

    /// Blocks until all writes are on disk (`fsync`, on Apple's systems `F_FULLFSYNC`).
    func synchronize() throws(HoldfastError) {
        #if canImport(Darwin)
            // On Apple's systems `fsync` leaves data in the cache of the drive.
            if fcntl(number, F_FULLFSYNC) == 0 { return }
        #endif
        guard fsync(number) == 0 else { throw Self.failure("fsync", path) }
    }

    /// Writes a new file and blocks until it is durable. If that fails, the file is removed to free space on a full
    /// disk.
    static func create(_ path: String, containing bytes: [UInt8]) throws(HoldfastError) -> FileDescriptor {
        let file = try FileDescriptor(path: path)
        do throws(HoldfastError) {
            try file.truncate(to: 0)
            try file.append(bytes)
            try file.synchronize()
        } catch {
            unlink(path)
            throw error
        }
        return file
    }

    /// Replaces a file atomically.
    static func replace(_ path: String, with replacement: String) throws(HoldfastError) {
        guard rename(replacement, path) == 0 else { throw failure("rename", path) }
    }

    /// Blocks until a directory's entries are on disk (`fsync`).
    static func synchronizeDirectory(_ path: String) throws(HoldfastError) {
        let number = open(path, O_RDONLY | O_CLOEXEC)
        guard number >= 0 else { throw failure("open", path) }
        defer { close(number) }
        guard fsync(number) == 0 else { throw failure("fsync", path) }
    }

    /// Describes the error of the system call that has just failed.
    private static func failure(_ call: String, _ path: String) -> HoldfastError {
        .storage("\(call) \(path): \(String(cString: strerror(errno)))")
    }
}

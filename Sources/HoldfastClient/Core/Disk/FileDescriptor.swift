#if canImport(Darwin)
    import Darwin
#elseif canImport(Musl)
    import Musl
#else
    import Glibc
#endif

/// An open file, closed when nobody holds it any more.
final class FileDescriptor: Sendable {
    private let number: Int32

    /// Opens a file to read and to append to it, and makes it if there is none; only its owner may read it.
    init(path: String) throws(HoldfastError) {
        number = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0o600)
        guard number >= 0 else { throw Self.failure("open", path) }
    }

    deinit {
        close(number)
    }

    /// Keeps other holders of the same file out until this one is closed, which the end of the process is too.
    ///
    /// - Returns: whether nobody else has it.
    func lock() -> Bool {
        flock(number, LOCK_EX | LOCK_NB) == 0
    }

    func append(_ bytes: [UInt8]) throws(HoldfastError) {
        var rest = bytes[...]
        while !rest.isEmpty {
            let count = rest.withUnsafeBytes { write(number, $0.baseAddress, $0.count) }
            if count < 0, errno == EINTR { continue }
            guard count > 0 else { throw Self.failure("write") }
            rest = rest.dropFirst(count)
        }
    }

    /// What the file holds from a byte on.
    func contents(from offset: Int = 0) throws(HoldfastError) -> [UInt8] {
        guard lseek(number, off_t(offset), SEEK_SET) >= 0 else { throw Self.failure("lseek") }
        var all: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 65_536)
        while true {
            let count = read(number, &buffer, buffer.count)
            if count < 0, errno == EINTR { continue }
            guard count >= 0 else { throw Self.failure("read") }
            if count == 0 { return all }
            all += buffer[..<count]
        }
    }

    func truncate(to length: Int) throws(HoldfastError) {
        guard ftruncate(number, off_t(length)) == 0 else { throw Self.failure("ftruncate") }
    }

    /// Blocks until what was written is on the disk.
    func synchronize() throws(HoldfastError) {
        guard fsync(number) == 0 else { throw Self.failure("fsync") }
    }

    /// Puts a file in the place of another, at once.
    static func replace(_ path: String, with replacement: String) throws(HoldfastError) {
        guard rename(replacement, path) == 0 else { throw failure("rename", path) }
    }

    /// Blocks until the names of a directory's files are on the disk.
    static func synchronizeDirectory(_ path: String) throws(HoldfastError) {
        let number = open(path, O_RDONLY | O_CLOEXEC)
        guard number >= 0 else { throw failure("open", path) }
        defer { close(number) }
        guard fsync(number) == 0 else { throw failure("fsync", path) }
    }

    private static func failure(_ call: String, _ path: String = "") -> HoldfastError {
        .storage("\(call) \(path): \(String(cString: strerror(errno)))")
    }
}

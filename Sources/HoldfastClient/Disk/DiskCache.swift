import Foundation

/// Cache files in a directory, with mode 0600. Each file is replaced atomically and has a checksum. A damaged file
/// reads as absent. Failures are only logged, because the app works without a cache.
final class DiskCache: Sendable {
    let directory: URL
    private let logger: HoldfastLogger?
    /// Serializes writes, because writes of one file share the name of the temporary file.
    private let writing = Locked(())

    /// The maximum size of a file; larger files are neither written nor read.
    static let maximumBytes = 64 * 1024 * 1024

    /// - Throws: ``HoldfastError/storage(_:)`` if the directory cannot be created.
    init(directory: URL, logger: HoldfastLogger? = nil) throws(HoldfastError) {
        self.directory = directory
        self.logger = logger
        do {
            try FileManager.default.createDirectory(
                at: directory, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
        } catch {
            throw .storage("\(directory.path) cannot be created: \(error.localizedDescription)")
        }
        #if canImport(Darwin)
            // Excluded from backups: a device restored from another one's backup would share its anonymous user and
            // report its events.
            var file = directory
            var values = URLResourceValues()
            values.isExcludedFromBackup = true
            try? file.setResourceValues(values)
        #endif
    }

    /// Returns the value of a file; `nil` if it is absent, damaged, or of another type.
    func read<Value: Decodable>(_ name: String, as type: Value.Type) -> Value? {
        let file = directory.appendingPathComponent(name)
        guard FileManager.default.fileExists(atPath: file.path) else { return nil }
        guard let size = try? file.resourceValues(forKeys: [.fileSizeKey]).fileSize, size <= Self.maximumBytes,
            let content = try? Data(contentsOf: file), let value = Self.decode(content, as: type)
        else {
            warn("a cache is damaged or unreadable", ["file": file.path])
            return nil
        }
        return value
    }

    /// The length of the checksum at the beginning of a file: a CRC-32, little-endian. The JSON follows.
    private static let checksumLength = 4

    private static func decode<Value: Decodable>(_ content: Data, as type: Value.Type) -> Value? {
        guard content.count > checksumLength else { return nil }
        let checksum = content.prefix(checksumLength).reversed().reduce(UInt32(0)) { $0 << 8 | UInt32($1) }
        let body = content.dropFirst(checksumLength)
        guard Checksum.crc32(body) == checksum else { return nil }
        return try? JSONDecoder().decode(type, from: Data(body))
    }

    /// Replaces a file. A failure is logged.
    func write(_ name: String, _ value: some Encodable) {
        let path = directory.appendingPathComponent(name).path
        do throws(HoldfastError) {
            let body = try HoldfastServer.encode(value)
            guard body.count <= Self.maximumBytes else {
                return warn("a cache is too large to be written", ["file": path, "bytes": "\(body.count)"])
            }
            let content = withUnsafeBytes(of: Checksum.crc32(body).littleEndian) { Array($0) } + body
            try writing.withLock { _ throws(HoldfastError) in
                _ = try FileDescriptor.create(path + ".new", containing: content)
                try FileDescriptor.replace(path, with: path + ".new")
            }
        } catch {
            warn("a cache cannot be written", ["file": path, "error": error.localizedDescription])
        }
    }

    /// Logs in another task, because the caller may hold a lock that a logger takes.
    private func warn(_ message: String, _ metadata: [String: String]) {
        guard let logger else { return }
        Task { logger(.warning, message, metadata) }
    }
}

/// CRC-32 (ISO 3309), to detect torn writes.
enum Checksum {
    /// The remainder of each byte, by the polynomial of CRC-32 with its bits reversed.
    private static let table: [UInt32] = (0..<256).map { index in
        (0..<8).reduce(UInt32(index)) { value, _ in value & 1 == 1 ? 0xEDB8_8320 ^ (value >> 1) : value >> 1 }
    }

    static func crc32(_ bytes: some Sequence<UInt8>) -> UInt32 {
        ~bytes.reduce(0xFFFF_FFFF) { value, byte in table[Int((value ^ UInt32(byte)) & 0xFF)] ^ (value >> 8) }
    }
}

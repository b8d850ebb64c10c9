import Foundation

/// Cache files in a directory. Each file is replaced atomically and carries a checksum; a damaged file reads as absent.
struct DiskCache: Sendable {
    let directory: URL

    /// Larger files are neither written nor read.
    static let maximumBytes = 64 * 1024 * 1024

    /// - Throws: ``HoldfastError/storage(_:)`` if the directory cannot be created.
    init(directory: URL) throws(HoldfastError) {
        self.directory = directory
        do {
            try FileManager.default.createDirectory(
                at: directory, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
        } catch {
            throw .storage("\(directory.path) cannot be created: \(error)")
        }
    }

    func read<Value: Decodable>(_ name: String, as type: Value.Type) -> Value? {
        let file = directory.appendingPathComponent(name)
        guard let size = try? file.resourceValues(forKeys: [.fileSizeKey]).fileSize, size <= Self.maximumBytes,
            let content = try? Data(contentsOf: file), content.count > 4
        else { return nil }
        let checksum = content.prefix(4).reversed().reduce(UInt32(0)) { $0 << 8 | UInt32($1) }
        let body = content.dropFirst(4)
        guard Checksum.crc32(body) == checksum else { return nil }
        return try? JSONDecoder().decode(type, from: Data(body))
    }

    /// Writes a file. Failures are ignored, because a cache is optional.
    func write(_ name: String, _ value: some Encodable) {
        guard let body = try? JSONEncoder().encode(value), body.count <= Self.maximumBytes else { return }
        var content = withUnsafeBytes(of: Checksum.crc32(body).littleEndian) { Data($0) }
        content.append(body)
        try? content.write(to: directory.appendingPathComponent(name), options: .atomic)
    }
}

/// CRC-32 (ISO 3309), to detect torn writes.
enum Checksum {
    private static let table: [UInt32] = (0..<256).map { index in
        (0..<8).reduce(UInt32(index)) { value, _ in value & 1 == 1 ? 0xEDB8_8320 ^ (value >> 1) : value >> 1 }
    }

    static func crc32(_ bytes: some Sequence<UInt8>) -> UInt32 {
        ~bytes.reduce(0xFFFF_FFFF) { value, byte in table[Int((value ^ UInt32(byte)) & 0xFF)] ^ (value >> 8) }
    }
}

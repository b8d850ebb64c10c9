import Foundation

/// Files of a directory that may be lost without harm: each is replaced as a whole, and one that is damaged reads as
/// absent.
struct DiskCache: Sendable {
    let directory: URL

    /// Larger files are not written, and not read.
    static let maximumBytes = 64 * 1024 * 1024

    /// - Throws: ``HoldfastError/storage(_:)`` when the directory cannot be made.
    init(directory: URL) throws(HoldfastError) {
        self.directory = directory
        do {
            try FileManager.default.createDirectory(
                at: directory, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
        } catch {
            throw .storage("\(directory.path) cannot be made: \(error)")
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

    /// Writes what can be written; a cache that cannot be is no reason to stop.
    func write(_ name: String, _ value: some Encodable) {
        guard let body = try? JSONEncoder().encode(value), body.count <= Self.maximumBytes else { return }
        var content = withUnsafeBytes(of: Checksum.crc32(body).littleEndian) { Data($0) }
        content.append(body)
        try? content.write(to: directory.appendingPathComponent(name), options: .atomic)
    }
}

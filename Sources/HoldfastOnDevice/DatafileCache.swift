import Bucketing
import Foundation
import HoldfastClient
import JSON

/// The datafiles of projects by SDK key, in memory and on disk.
final class DatafileCache: Sendable {
    /// A datafile with the entity tag of the response that had it.
    struct Entry: Sendable {
        let datafile: Datafile
        let entityTag: String?
    }

    /// The content of a file.
    private struct Stored: Codable {
        /// The key of the project. It is compared when the file is read, because two keys may have the same hash and
        /// therefore the same file. `nil` in files of earlier releases.
        var sdkKey: String?
        var entityTag: String?
        var json: Data
    }

    private let directory: URL
    private let lock = NSLock()
    /// Safe: read and written inside the lock only.
    private nonisolated(unsafe) var entries: [String: Entry] = [:]

    init(directory: URL) {
        self.directory = directory
    }

    /// Returns the file of a project. Its name has a hash, because SDK keys may have characters that file names cannot.
    private func file(_ sdkKey: String) -> URL {
        let name = String(Array(sdkKey.utf8).withUnsafeBytes { MurmurHash3.hash($0, seed: 1) }, radix: 16)
        return directory.appendingPathComponent("datafile-\(name).cache")
    }

    /// Returns the datafile of a project, from disk at the first access; `nil` if there is none.
    func entry(_ sdkKey: String) -> Entry? {
        lock.withLock {
            if let entry = entries[sdkKey] { return entry }
            guard let data = try? Data(contentsOf: file(sdkKey)),
                let stored = try? PropertyListDecoder().decode(Stored.self, from: data),
                stored.sdkKey.map({ $0 == sdkKey }) ?? true,
                let json = try? JSONParser().parse(Array(stored.json)), let datafile = try? Datafile(json)
            else { return nil }
            let entry = Entry(datafile: datafile, entityTag: stored.entityTag)
            entries[sdkKey] = entry
            return entry
        }
    }

    /// Replaces the datafile of a project by a response.
    ///
    /// - Throws: ``HoldfastError/invalidResponse(_:)`` if the body is not a datafile; the former datafile stays.
    func keep(_ body: Data, _ entityTag: String?, _ sdkKey: String) throws(HoldfastError) -> Entry {
        let former = self.entry(sdkKey)?.datafile
        let datafile: Datafile
        do {
            datafile = try Datafile(try JSONParser().parse(Array(body)), similarTo: former)
        } catch {
            throw .invalidResponse("not a datafile: \(error)")
        }
        let entry = Entry(datafile: datafile, entityTag: entityTag)
        return lock.withLock {
            entries[sdkKey] = entry
            let encoder = PropertyListEncoder()
            encoder.outputFormat = .binary
            // If it cannot be written, the next run fetches it again.
            if let data = try? encoder.encode(Stored(sdkKey: sdkKey, entityTag: entityTag, json: body)) {
                try? data.write(to: file(sdkKey), options: .atomic)
            }
            return entry
        }
    }
}

import Foundation
import HoldfastCore

/// A datafile, or a directory of them (`*.json`), named on the command line.
struct DatafileSource {
    let path: String

    /// - Throws: ``Failure``, naming the file and what is wrong with it.
    func load(into catalog: ProjectCatalog) throws -> [String] {
        var loaded: [String] = []
        for file in try files() {
            do {
                let sdkKey = try catalog.load(try Self.read(file), named: file.deletingPathExtension().lastPathComponent)
                guard !loaded.contains(sdkKey) else {
                    throw Failure("the datafile \(file.path) has the SDK key '\(sdkKey)' of another one")
                }
                loaded.append(sdkKey)
            } catch let error as DatafileLoadError {
                throw Failure("the datafile \(file.path) is not usable: \(error)")
            }
        }
        return loaded
    }

    private func files() throws -> [URL] {
        let url = URL(fileURLWithPath: path)
        guard FileManager.default.fileExists(atPath: path) else { throw Failure("there is no datafile \(path)") }
        guard FileManager.default.directoryExists(atPath: path) else { return [url] }
        let files = try FileManager.default.contentsOfDirectory(at: url, includingPropertiesForKeys: nil)
            .filter { $0.pathExtension == "json" }.sorted { $0.path < $1.path }
        guard !files.isEmpty else { throw Failure("the directory \(path) has no *.json file") }
        return files
    }

    static func read(_ file: URL) throws -> [UInt8] {
        do {
            return Array(try Data(contentsOf: file))
        } catch {
            throw Failure("\(file.path) cannot be read: \(error.localizedDescription)")
        }
    }
}

extension FileManager {
    func directoryExists(atPath path: String) -> Bool {
        var isDirectory: ObjCBool = false
        return fileExists(atPath: path, isDirectory: &isDirectory) && isDirectory.boolValue
    }
}

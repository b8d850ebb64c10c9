import FoundationEssentials
import HoldfastCore

/// The value of `--datafile`: a datafile, or a directory of datafiles (`*.json`).
struct DatafileSource {
    let path: String

    private struct File {
        let url: URL
        let content: [UInt8]
    }

    /// Stores the datafiles, and makes them the active ones of their projects.
    ///
    /// - Returns: the SDK keys of the projects.
    /// - Throws: ``ConfigurationError`` with the faults of a file, ``Failure`` if the store fails.
    func load(into catalog: ProjectCatalog, sharing: SharePolicy) throws -> [String] {
        let files = try ConfigurationError.wrapping {
            try self.files().map { url in File(url: url, content: try Self.read(url)) }
        }
        if files.count > 1 { try Self.expectDifferentKeys(files) }
        var sdkKeys: [String] = []
        for file in files {
            let sdkKey: String = try Self.namingFile(file.url) { name throws(DatafileLoadError) in
                try catalog.load(file.content, named: name, sharing: sharing)
            }
            sdkKeys.append(sdkKey)
        }
        return sdkKeys
    }

    /// Checks that all datafiles are usable and of different projects, before the first one is stored.
    private static func expectDifferentKeys(_ files: [File]) throws {
        var known: Set<String> = []
        for file in files {
            try namingFile(file.url) { name throws(DatafileLoadError) -> Void in
                let sdkKey = try DatafileSummary(checking: file.content).sdkKey ?? name
                guard known.insert(sdkKey).inserted else {
                    throw DatafileLoadError("it has the SDK key '\(sdkKey)' of another one")
                }
            }
        }
    }

    /// Does work with a file, and names the file in errors.
    ///
    /// - Parameter work: gets the name of the file without its extension.
    /// - Throws: ``ConfigurationError`` with the file if the work finds a fault, ``Failure`` if the store fails.
    private static func namingFile<Value>(
        _ file: URL, _ work: (String) throws(DatafileLoadError) -> Value
    ) throws -> Value {
        do throws(DatafileLoadError) {
            return try work(file.deletingPathExtension().lastPathComponent)
        } catch {
            let failure = Failure("the datafile \(file.path) is not usable: \(error)")
            if error.isOfStore { throw failure }
            throw ConfigurationError(reason: failure)
        }
    }

    /// Returns the files that the path names, in the order of their names.
    private func files() throws -> [URL] {
        let url = URL(fileURLWithPath: path)
        guard FileManager.default.fileExists(atPath: path) else { throw Failure("there is no datafile \(path)") }
        guard FileManager.default.directoryExists(atPath: path) else { return [url] }
        let names: [String]
        do {
            names = try FileManager.default.contentsOfDirectory(atPath: path)
        } catch {
            throw Failure("the directory \(path) cannot be read: \(error)")
        }
        let files = names.sorted().map { url.appending(path: $0) }.filter { $0.pathExtension == "json" }
        guard !files.isEmpty else { throw Failure("the directory \(path) has no *.json file") }
        return files
    }

    /// Returns the content of a file.
    static func read(_ file: URL) throws -> [UInt8] {
        do {
            return try OpenFile.content(of: file.path)
        } catch {
            throw Failure("\(file.path) cannot be read: \(error)")
        }
    }
}

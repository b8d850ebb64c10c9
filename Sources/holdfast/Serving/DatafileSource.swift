import FoundationEssentials
import HoldfastCore

/// The value of `--datafile`: a datafile, or a directory of datafiles (`*.json`).
struct DatafileSource {
    let path: String

    /// A usable datafile, and the SDK key of its project.
    private struct File {
        let url: URL
        let summary: DatafileSummary
        let sdkKey: String
    }

    /// Stores the datafiles, and makes them the active ones of their projects. Checks that all of them are usable and of
    /// different projects before the first one is stored.
    ///
    /// - Returns: the SDK keys of the projects.
    /// - Throws: ``ConfigurationError`` with the faults of a file, ``Failure`` if the store fails.
    func load(into catalog: ProjectCatalog, sharing: SharePolicy) throws -> [String] {
        var files: [File] = []
        for url in try ConfigurationError.wrapping({ try self.files() }) {
            let content = try ConfigurationError.wrapping { try Self.read(url) }
            let file: File = try Self.namingFile(url) { name throws(DatafileLoadError) in
                let summary = try DatafileSummary(checking: content)
                let sdkKey = try summary.projectKey(otherwise: name)
                guard !files.contains(where: { $0.sdkKey == sdkKey }) else {
                    throw DatafileLoadError("it has the SDK key '\(sdkKey)' of another one")
                }
                return File(url: url, summary: summary, sdkKey: sdkKey)
            }
            files.append(file)
        }
        for file in files {
            try Self.namingFile(file.url) { _ throws(DatafileLoadError) -> Void in
                try catalog.load(file.summary, into: file.sdkKey, sharing: sharing)
            }
        }
        return files.map(\.sdkKey)
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

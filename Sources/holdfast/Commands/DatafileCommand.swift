import ArgumentParser
import FoundationEssentials
import HoldfastCore

/// Commands for datafiles that need no server.
struct DatafileCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "datafile", abstract: "Checks datafiles.", subcommands: [DatafileCheckCommand.self])
}

/// Checks whether the server would accept a datafile, and prints all its faults.
struct DatafileCheckCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "check", abstract: "Checks whether the server would accept a datafile; exit status 1 if not.")

    @Argument(help: "The datafile.")
    var file: String

    func run() throws {
        let content = try DatafileSource.read(URL(fileURLWithPath: file))
        do throws(DatafileLoadError) {
            let summary = try DatafileSummary(checking: content)
            print(
                "\(file) is usable: revision \(summary.revision), \(summary.experiments) experiments and rules, "
                    + "\(summary.flags) flags, \(summary.audiences) audiences"
                    + (summary.sdkKey.map { ", SDK key \($0)" } ?? ""))
            for warning in summary.warnings { OpenFile.printError("warning: \(warning)\n") }
        } catch {
            OpenFile.printError("\(file) is not usable:\n\(error)\n")
            throw ExitCode(1)
        }
    }
}

/// A datafile, or a directory of them (`*.json`), named on the command line.
struct DatafileSource {
    let path: String

    /// Stores the datafiles, and makes them the active ones of their projects.
    ///
    /// - Returns: the SDK keys of the projects.
    /// - Throws: ``ConfigurationError`` with the faults of a file, ``Failure`` if the store fails.
    func load(into catalog: ProjectCatalog, sharing: SharePolicy) throws -> [String] {
        let files: [(url: URL, content: [UInt8])] = try ConfigurationError.wrapping {
            try self.files().map { (url: $0, content: try Self.read($0)) }
        }
        if files.count > 1 { try Self.expectDifferentKeys(files) }
        var sdkKeys: [String] = []
        for file in files {
            let sdkKey: String = try Self.usable(file.url) { name throws(DatafileLoadError) in
                try catalog.load(file.content, named: name, sharing: sharing)
            }
            sdkKeys.append(sdkKey)
        }
        return sdkKeys
    }

    /// Checks all datafiles before the first one is stored.
    private static func expectDifferentKeys(_ files: [(url: URL, content: [UInt8])]) throws {
        var known: Set<String> = []
        for file in files {
            try usable(file.url) { name throws(DatafileLoadError) -> Void in
                let sdkKey = try DatafileSummary(checking: file.content).sdkKey ?? name
                guard known.insert(sdkKey).inserted else {
                    throw DatafileLoadError("it has the SDK key '\(sdkKey)' of another one")
                }
            }
        }
    }

    /// - Parameter work: gets the name of the file without its extension.
    /// - Throws: ``ConfigurationError`` with the file if the work finds a fault, ``Failure`` if the store fails.
    private static func usable<Value>(
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

    static func read(_ file: URL) throws -> [UInt8] {
        do {
            return try OpenFile.content(of: file.path)
        } catch {
            throw Failure("\(file.path) cannot be read: \(error)")
        }
    }
}

extension FileManager {
    func directoryExists(atPath path: String) -> Bool {
        var isDirectory = false
        return fileExists(atPath: path, isDirectory: &isDirectory) && isDirectory
    }
}

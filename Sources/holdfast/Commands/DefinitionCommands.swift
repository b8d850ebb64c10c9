import ArgumentParser
import Definitions
import FoundationEssentials
import HoldfastAPI
import HoldfastCore
import JSON

/// Options of commands that read definitions from files.
struct DefinitionFileOptions: ParsableArguments {
    @Option(
        name: [.customShort("f"), .long],
        help: .init("A file, YAML or JSON, or a directory of some; may be repeated.", valueName: "path"))
    var file: [String]

    /// Reads the files.
    func read() throws -> DefinitionFiles { try DefinitionFiles(file) }
}

/// Options of commands that read definitions from files or from a server.
struct DefinitionSourceOptions: ParsableArguments {
    @Option(
        name: [.customShort("f"), .long],
        help: .init("A file or directory with definitions, instead of a server; may be repeated.", valueName: "path"))
    var file: [String] = []

    @OptionGroup var server: ProjectOptions

    /// Returns the definitions of the files if any file is given, otherwise those of the server.
    func definitions() throws -> DefinitionSet {
        guard file.isEmpty else { return try DefinitionFiles(file).checked().definitions }
        do {
            return try DefinitionSet(try server.client().send("GET", "/v1/definitions"))
        } catch let refusal as ServerRefusal {
            throw Failure(refusal.description)
        }
    }

    /// Returns the keys of the flags that were not used for a number of days, from the server.
    func unusedFlags(for days: String) throws -> Set<String> {
        guard file.isEmpty else { throw Failure("--unused needs a server; --file names files") }
        let client = try server.client()
        var keys: Set<String> = []
        // The key after which the next page begins; empty for the first page, `nil` after the last one.
        var after: String? = ""
        while let start = after {
            let path = "/v1/flags?limit=1000&stale=\(days.percentEncoded)"
            do {
                let page = try client.send("GET", path + (start.isEmpty ? "" : "&after=\(start.percentEncoded)")).object
                keys.formUnion((page?["flags"]?.array ?? []).compactMap { $0.object?["key"]?.string })
                after = page?["next"]?.string
            } catch let refusal as ServerRefusal {
                throw Failure(refusal.description)
            }
        }
        return keys
    }
}

/// Writes the definitions of a server to files.
struct PullCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "pull", abstract: "Writes the definitions of a server as YAML.")

    @Option(
        name: .shortAndLong,
        help: .init(
            "A file, or a directory for a file of each kind (default: standard output).", valueName: "path"))
    var output: String?

    @Flag(help: "Overwrite files that have comments, which are lost.")
    var overwrite = false

    @OptionGroup var server: ProjectOptions

    func run() throws {
        let definitions = try server.client().send("GET", "/v1/definitions").object ?? JSONObject()
        guard let output, output != "-" else { return print(text(definitions), terminator: "") }
        guard !output.hasSuffix(".yaml"), !output.hasSuffix(".yml") else {
            try checkComments([output])
            return try OpenFile.write(text(definitions), to: output)
        }
        do {
            try FileManager.default.createDirectory(atPath: output, withIntermediateDirectories: true)
        } catch {
            throw Failure("the directory \(output) cannot be made: \(error)")
        }
        try checkComments(DefinitionSet.members.map { Self.path(of: $0, in: output) })
        for member in DefinitionSet.members {
            var single = JSONObject()
            single[member] = definitions[member] ?? []
            let path = Self.path(of: member, in: output)
            // A file of an earlier pull must not keep definitions that are gone from the server.
            if single[member] != [] || FileManager.default.fileExists(atPath: path) {
                try OpenFile.write(text(single), to: path)
            }
        }
    }

    /// Returns the path of the file for one kind of definitions.
    private static func path(of member: String, in directory: String) -> String { "\(directory)/\(member).yaml" }

    /// - Throws: ``Failure`` if a file has comments, which would be lost.
    private func checkComments(_ paths: [String]) throws {
        guard !overwrite else { return }
        for path in paths where FileManager.default.fileExists(atPath: path) {
            let content = String(decoding: try OpenFile.content(of: path), as: UTF8.self)
            guard let line = YAMLReader.firstComment(in: content) else { continue }
            throw Failure(
                "\(path) must have no comments, which would be lost; line \(line) has one: pull into another file, or use "
                    + "--overwrite; nothing was written")
        }
    }

    /// Returns YAML of the lists that are not empty.
    private func text(_ definitions: JSONObject) -> String {
        var shown = JSONObject()
        for member in definitions where member.value != [] { shown[member.key] = member.value }
        return shown.isEmpty ? "" : YAMLWriter.text(.object(shown))
    }
}

/// Checks files without a server.
struct LintCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "lint",
        abstract: "Checks definitions in files without a server: what they name must be in them.")

    @OptionGroup var files: DefinitionFileOptions

    func run() throws {
        let files = try files.read()
        let set = try files.set()
        files.print(try files.checked().warnings.map { ($0.fault.pointer, $0.fault.reason) })
        let project = set.project == nil ? [] : [DefinitionSet.projectMember]
        let counts =
            project
            + DefinitionSet.Kind.allCases.compactMap { kind -> String? in
                let count = set[kind].count
                return count == 0 ? nil : "\(count) \(count == 1 ? kind.noun : kind.rawValue)"
            }
        print(counts.isEmpty ? "no definitions" : "usable: " + counts.joined(separator: ", "))
    }
}

/// Writes code for programs that evaluate flags.
struct GenerateCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "generate", abstract: "Writes code with typed flags and experiments.",
        subcommands: [GenerateSwiftCommand.self])
}

/// Writes Swift code for HoldfastClient.
struct GenerateSwiftCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "swift", abstract: "Writes Swift code for HoldfastClient, from files or from what a server has.")

    @OptionGroup var source: DefinitionSourceOptions

    @Option(name: .customLong("type"), help: .init("The name of the type (default: HoldfastFlags).", valueName: "name"))
    var typeName = "HoldfastFlags"

    @Option(name: .shortAndLong, help: .init("The file to write (default: standard output).", valueName: "path"))
    var output: String?

    func run() throws {
        let text = try SwiftGenerator(try source.definitions(), typeName: typeName).text
        guard let output, output != "-" else { return print(text, terminator: "") }
        try OpenFile.write(text, to: output)
    }
}

/// Prints the schema of files.
struct SchemaCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "schema", abstract: "Prints the JSON Schema of definitions in files, for editors.")

    func run() throws {
        try OpenFile.standardOutput.write(DefinitionSchema.text + Array("\n".utf8))
    }
}

extension DefinitionFiles {
    /// Checks the definitions by applying them to an empty project.
    ///
    /// - Throws: ``DefinitionFaults`` with the place of each fault.
    fileprivate func checked() throws -> DefinitionSetEdit.Outcome {
        let set = try set()
        do throws(CoreError) {
            return try DefinitionSetEdit.check(set)
        } catch {
            let faults = error.faults.isEmpty ? [JSONFault(pointer: [], reason: error.detail)] : error.faults
            throw DefinitionFaults(describe(faults))
        }
    }

    /// Prints warnings on standard error, with the places that they concern.
    func print(_ warnings: [(pointer: JSONPointer, text: String)]) {
        for warning in describe(warnings.map { JSONFault(pointer: $0.pointer, reason: $0.text) }) {
            OpenFile.printError("warning: \(warning)\n")
        }
    }
}

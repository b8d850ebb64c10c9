import ArgumentParser
import FoundationEssentials
import HoldfastAPI
import HoldfastCore
import JSON

/// Files with definitions.
struct DefinitionFileOptions: ParsableArguments {
    @Option(
        name: [.customShort("f"), .long],
        help: .init("A file, YAML or JSON, or a directory of some; may be repeated.", valueName: "path"))
    var file: [String]

    func read() throws -> DefinitionFiles { try DefinitionFiles(file) }
}

/// Definitions in files, or what a server has.
struct DefinitionSourceOptions: ParsableArguments {
    @Option(
        name: [.customShort("f"), .long],
        help: .init("A file or directory with definitions, instead of a server; may be repeated.", valueName: "path"))
    var file: [String] = []

    @OptionGroup var server: ProjectOptions

    func definitions() throws -> DefinitionSet {
        guard file.isEmpty else { return try DefinitionFiles(file).checked().definitions }
        do {
            return try DefinitionSet(try server.client().send("GET", "/v1/definitions"))
        } catch let refusal as ServerRefusal {
            throw Failure(refusal.description)
        }
    }

    /// Asks the server for the flags that were not used for some days.
    func unusedFlags(for days: String) throws -> Set<String> {
        guard file.isEmpty else { throw Failure("--unused needs a server; --file names files") }
        let client = try server.client()
        var (keys, after): (Set<String>, String?) = ([], "")
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

/// Shows what applying files would change.
struct PlanCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "plan",
        abstract: "Shows what applying definitions in files to a server would change, and who would move.",
        discussion: "The exit status is 0 if nothing would change, 2 if something would, 1 after an error.")

    @OptionGroup var files: DefinitionFileOptions
    @OptionGroup var server: ProjectOptions

    @Flag(help: "Remove what the files lack.")
    var prune = false

    func run() throws {
        let (files, client) = (try files.read(), try server.client())
        let path = "/v1/definitions/preview" + (prune ? "?prune=true" : "")
        let plan = DefinitionPlan(try files.send(to: client, "POST", path))
        print(plan.text(isDone: false), terminator: "")
        files.print(plan.warnings)
        if !plan.isEmpty { throw ExitCode(2) }
    }
}

/// Applies files to a server.
struct ApplyCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "apply", abstract: "Applies definitions in files to a server, all of them or none.",
        discussion: "The exit status is 3 if the change waits for the approval of a second person.")

    @OptionGroup var files: DefinitionFileOptions
    @OptionGroup var server: ProjectOptions

    @Flag(help: "Remove what the files lack.")
    var prune = false

    @Option(help: .init("allow: change the variations of users who take part (default: refuse).", valueName: "policy"))
    var moves = "refuse"

    func run() throws {
        guard ProjectEditor.MovePolicy(rawValue: moves) != nil else {
            throw Failure("--moves must be 'allow' or 'refuse'; got '\(moves)'")
        }
        let (files, client) = (try files.read(), try server.client())
        let path = "/v1/definitions?moves=\(moves)" + (prune ? "&prune=true" : "")
        let response = try files.send(to: client, "PUT", path)
        if let proposal = response.object?["proposal"]?.object, let id = proposal["id"]?.string {
            let experiments = (proposal["experiments"]?.array ?? []).compactMap(\.string).joined(separator: ", ")
            print(
                "changes running experiments (\(experiments)): waits for another person, POST /v1/proposals/\(id)/approve"
            )
            throw ExitCode(3)
        }
        let plan = DefinitionPlan(response)
        print(plan.text(isDone: true), terminator: "")
        files.print(plan.warnings)
    }
}

/// Writes what a server has to files.
struct PullCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "pull", abstract: "Writes the definitions of a server as YAML.")

    @Option(
        name: .shortAndLong,
        help: .init(
            "A file, or a directory for a file of each kind (default: standard output).", valueName: "path"))
    var output: String?

    @OptionGroup var server: ProjectOptions

    func run() throws {
        let definitions = try server.client().send("GET", "/v1/definitions").object ?? JSONObject()
        guard let output, output != "-" else { return print(text(definitions), terminator: "") }
        guard !output.hasSuffix(".yaml"), !output.hasSuffix(".yml") else {
            return try OpenFile.write(text(definitions), to: output)
        }
        do {
            try FileManager.default.createDirectory(atPath: output, withIntermediateDirectories: true)
        } catch {
            throw Failure("the directory \(output) cannot be made: \(error)")
        }
        for kind in DefinitionSet.Kind.allCases {
            var single = JSONObject()
            single[kind.rawValue] = definitions[kind.rawValue] ?? []
            let path = "\(output)/\(kind.rawValue).yaml"
            // A file of a former pull must not define what is gone.
            if single[kind.rawValue] != [] || FileManager.default.fileExists(atPath: path) {
                try OpenFile.write(text(single), to: path)
            }
        }
    }

    /// The lists that are not empty.
    private func text(_ definitions: JSONObject) -> String {
        var shown = JSONObject()
        for member in definitions where member.value != [] { shown[member.key] = member.value }
        return shown.isEmpty ? "" : YAMLWriter.text(.object(shown))
    }

}

extension OpenFile {
    /// Writes a whole file, or leaves it as it is.
    fileprivate static func write(_ text: String, to path: String) throws {
        do {
            try Data(text.utf8).write(to: URL(fileURLWithPath: path), options: .atomic)
        } catch {
            throw Failure("\(path) cannot be written: \(error)")
        }
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
        files.print(try files.checked().warnings.map { ($0.pointer, $0.reason) })
        let counts = DefinitionSet.Kind.allCases.compactMap { kind -> String? in
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
    /// Applies the definitions to an empty project.
    ///
    /// - Throws: ``DefinitionFaults`` with the places of everything that is wrong.
    fileprivate func checked() throws -> DefinitionSetEdit.Outcome {
        let set = try set()
        do throws(CoreError) {
            return try DefinitionSetEdit.check(set)
        } catch {
            let faults = error.faults.isEmpty ? [JSONFault(pointer: [], reason: error.detail)] : error.faults
            throw DefinitionFaults(describe(faults))
        }
    }

    /// Sends the definitions to a server.
    ///
    /// - Throws: ``DefinitionFaults`` with the places of everything that the server refuses.
    fileprivate func send(to client: ServerClient, _ method: String, _ path: String) throws -> JSONValue {
        let set = try set()
        do {
            return try client.send(method, path, body: set.json)
        } catch let refusal as ServerRefusal {
            guard refusal.faults.isEmpty else { throw DefinitionFaults(describe(refusal.faults)) }
            throw Failure(refusal.description)
        }
    }

    fileprivate func print(_ warnings: [(pointer: JSONPointer, text: String)]) {
        for warning in describe(warnings.map { JSONFault(pointer: $0.pointer, reason: $0.text) }) {
            OpenFile.printError("warning: \(warning)\n")
        }
    }
}

/// What a server says of definitions that it applies, or would apply.
private struct DefinitionPlan {
    private let response: JSONObject

    init(_ response: JSONValue) {
        self.response = response.object ?? JSONObject()
    }

    private var changes: [JSONObject] { (response["changes"]?.array ?? []).compactMap(\.object) }

    var isEmpty: Bool { changes.isEmpty }

    var warnings: [(pointer: JSONPointer, text: String)] {
        (response["warnings"]?.array ?? []).compactMap(\.object).map {
            (JSONPointer(string: $0["pointer"]?.string ?? ""), $0["message"]?.string ?? "")
        }
    }

    /// A line for each element and member, and who moves.
    func text(isDone: Bool) -> String {
        guard !isEmpty else { return "nothing to change\n" }
        var (text, counts) = ("", [0, 0, 0])
        for change in changes {
            let action = ["create", "change", "remove"].firstIndex(of: change["action"]?.string) ?? 1
            counts[action] += 1
            text += "\(["+", "~", "-"][action]) \(change["kind"]?.string ?? "") \(change["key"]?.string ?? "")\n"
            for member in (change["members"]?.array ?? []).compactMap(\.object) {
                text += "    \(member["member"]?.string ?? ""): "
                text += "\(Self.text(member["before"])) -> \(Self.text(member["after"]))\n"
            }
        }
        text += "\n\(counts[0]) to create, \(counts[1]) to change, \(counts[2]) to remove\n"
        if isDone {
            text = text.replacing("to create", with: "created").replacing("to change", with: "changed")
                .replacing("to remove", with: "removed")
        }
        return text + (isDone ? "" : movesText)
    }

    private var movesText: String {
        let moves = response["moves"]?.object
        let (users, others) = (moves?["users"]?.integer ?? 0, moves?["other_experiment"]?.integer ?? 0)
        guard users + others > 0 else { return "no user who takes part would move\n" }
        var text = "\(users) who take part would get another variation"
        if others > 0 { text += ", \(others) the same one of another experiment" }
        text += "; apply with --moves allow:\n"
        for cause in (moves?["causes"]?.array ?? []).compactMap(\.object) {
            let by = cause["by"]?.string.map { " \($0)" } ?? ""
            text += "    \(cause["experiment"]?.string ?? ""): \(cause["cause"]?.string ?? "")\(by),"
            text += " \(cause["users"]?.integer ?? 0) users\n"
        }
        return text
    }

    private static func text(_ value: JSONValue?) -> String {
        value.map { $0.isNull ? "none" : String(decoding: $0.encoded(), as: UTF8.self) } ?? "none"
    }
}

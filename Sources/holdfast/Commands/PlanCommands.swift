import ArgumentParser
import struct Bucketing.Identifier
import Definitions
import FoundationEssentials
import HoldfastCore
import JSON

/// The options of all commands that apply definitions to a server, or show what applying them would change.
struct ApplyingOptions: ParsableArguments {
    @Flag(help: "Remove what the files lack.")
    var prune = false

    @Option(help: .init("How much --prune may remove at most; required if the files have nothing.", valueName: "n"))
    var maxRemovals: Int?

    @Flag(help: "Leave the ids of experiments out, for another project of the server from which the files come.")
    var newIds = false

    @Option(
        help: .init(
            "allow: use ids of another project's experiments, and so share its users (default: refuse).",
            valueName: "policy"))
    var share = "refuse"

    /// Returns the query parameters of the requests, each as `name=value`.
    ///
    /// - Throws: ``Failure`` if `--share` has an unknown value.
    func query() throws -> [String] {
        guard let policy = ["refuse", "allow"].first(where: { $0 == share }) else {
            throw Failure("--share must be 'allow' or 'refuse'; got '\(share)'")
        }
        var query = policy == "allow" ? ["share=allow"] : []
        if prune { query.append("prune=true") }
        if let maxRemovals { query.append("max_removals=\(maxRemovals)") }
        return query
    }
}

/// Shows the changes that applying files would make.
struct PlanCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "plan",
        abstract: "Shows what applying definitions in files to a server would change, and who would move.",
        discussion: "The exit status is 0 if nothing would change, 2 if something would, 1 after an error.")

    enum Format: EnumerableFlag {
        case text, json, markdown

        static func help(for value: Format) -> ArgumentHelp? {
            switch value {
            case .text: "Print text (default)."
            case .json: "Print the server's response."
            case .markdown: "Print Markdown, for a comment on a pull request."
            }
        }
    }

    @OptionGroup var files: DefinitionFileOptions
    @OptionGroup var server: ProjectOptions
    @OptionGroup var applying: ApplyingOptions

    @Flag var format = Format.text

    @Option(help: .init("A file for the plan, which 'holdfast apply' takes.", valueName: "path"))
    var out: String?

    func run() throws {
        let files = try files.read()
        let client = try server.client()
        let query = try applying.query()
        let set = try files.set(withoutIDs: applying.newIds)
        let response = try files.send(set, to: client, "POST", "/v1/definitions/preview", query)
        let plan = DefinitionPlan(response, splitsAnew: applying.newIds)
        switch format {
        case .text: print(plan.text(isDone: false), terminator: "")
        case .json: print(String(decoding: response.encoded(), as: UTF8.self))
        case .markdown: print(plan.markdown, terminator: "")
        }
        files.print(plan.warnings)
        if let out { try StoredPlan(set.json, plan.basis, query, server.projectKey()).write(to: out) }
        if !plan.isEmpty { throw ExitCode(2) }
    }
}

/// Applies the definitions in files, or a stored plan, to a server.
struct ApplyCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "apply", abstract: "Applies definitions in files to a server, all of them or none.",
        discussion: "The exit status is 3 if the change waits for the approval of a second person.")

    @Argument(help: "A plan that 'holdfast plan --out' has written, instead of files.")
    var plan: String?

    @Option(
        name: [.customShort("f"), .long],
        help: .init("A file, YAML or JSON, or a directory of some; may be repeated.", valueName: "path"))
    var file: [String] = []

    @OptionGroup var server: ProjectOptions
    @OptionGroup var applying: ApplyingOptions

    @Option(help: .init("allow: change the variations of enrolled users (default: refuse).", valueName: "policy"))
    var moves = "refuse"

    func run() throws {
        try Self.check(moves: moves)
        guard (plan == nil) != file.isEmpty else {
            throw Failure("either a plan or -f must be given; got \(plan == nil ? "neither" : "both")")
        }
        let client = try server.client()
        let query = try applying.query()
        if let plan {
            guard query.isEmpty, !applying.newIds else {
                throw Failure("a plan has its own options; got some besides --moves")
            }
            let stored = try StoredPlan(readFrom: plan)
            let response = try stored.apply(to: client, sdkKey: server.projectKey(), moves: moves)
            // The files from which the plan was made are not known, so warnings have no places.
            for warning in try report(response).warnings { OpenFile.printError("warning: \(warning.text)\n") }
        } else {
            let files = try DefinitionFiles(file)
            let set = try files.set(withoutIDs: applying.newIds)
            let response = try files.send(set, to: client, "PUT", "/v1/definitions", query + ["moves=\(moves)"])
            files.print(try report(response).warnings)
        }
    }

    /// Prints what a response says was changed.
    ///
    /// - Returns: the changes, with their warnings.
    private func report(_ response: JSONValue) throws -> DefinitionPlan {
        let applied = try DefinitionPlan(applied: response, splitsAnew: applying.newIds)
        print(applied.text(isDone: true), terminator: "")
        return applied
    }

    /// Checks the value of `--moves`. ``PromoteCommand`` has the same option.
    ///
    /// - Throws: ``Failure`` if the value is unknown.
    static func check(moves: String) throws(Failure) {
        guard ProjectEditor.MovePolicy(rawValue: moves) != nil else {
            throw Failure("--moves must be 'allow' or 'refuse'; got '\(moves)'")
        }
    }
}

extension DefinitionFiles {
    /// Returns the definitions in the format of the API.
    ///
    /// - Parameter withoutIDs: whether to remove what depends on the project from which the files come: the ids of
    ///   experiments and variations, and the allocation of bucket values.
    fileprivate func set(withoutIDs: Bool) throws -> DefinitionSet {
        let set = try set()
        return withoutIDs ? set.withoutIDs() : set
    }

    /// Sends definitions to a server.
    ///
    /// - Parameters:
    ///   - path: the path of the route, without a query.
    ///   - query: the query parameters, each as `name=value`.
    /// - Returns: the server's response.
    /// - Throws: ``DefinitionFaults`` with the place of each fault that the server reports.
    fileprivate func send(
        _ set: DefinitionSet, to client: ServerClient, _ method: String, _ path: String, _ query: [String]
    ) throws -> JSONValue {
        do {
            let target = query.isEmpty ? path : "\(path)?\(query.joined(separator: "&"))"
            return try client.send(method, target, body: set.json)
        } catch let refusal as ServerRefusal {
            // A fault without a pointer has no place in a file. If no fault has one, the refusal is shown as a whole.
            let faults = refusal.faults.filter { !$0.pointer.string.isEmpty }
            guard faults.isEmpty else { throw DefinitionFaults(describe(refusal.faults)) }
            throw Failure(refusal.description)
        }
    }
}

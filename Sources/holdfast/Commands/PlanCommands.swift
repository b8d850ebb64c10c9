import ArgumentParser
import struct Bucketing.Identifier
import Definitions
import FoundationEssentials
import HoldfastCore
import JSON

/// Options of commands that apply definitions to a server.
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

    /// Returns the query parameters for these options.
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

/// Shows what applying files would change.
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

/// Applies files to a server.
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
        let files = try file.isEmpty ? nil : DefinitionFiles(file)
        let response: JSONValue
        if let plan {
            guard query.isEmpty, !applying.newIds else {
                throw Failure("a plan has its own options; got some besides --moves")
            }
            response = try StoredPlan(readFrom: plan).apply(to: client, sdkKey: server.projectKey(), moves: moves)
        } else if let files {
            let set = try files.set(withoutIDs: applying.newIds)
            response = try files.send(set, to: client, "PUT", "/v1/definitions", query + ["moves=\(moves)"])
        } else {
            return
        }
        let plan = try DefinitionPlan(applied: response, splitsAnew: applying.newIds)
        print(plan.text(isDone: true), terminator: "")
        if let files {
            files.print(plan.warnings)
        } else {
            plan.warnings.forEach { OpenFile.printError("warning: \($0.text)\n") }
        }
    }

    /// Checks the value of `--moves`, also for ``PromoteCommand``.
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
    /// - Throws: ``DefinitionFaults`` with the place of each fault that the server reports.
    fileprivate func send(
        _ set: DefinitionSet, to client: ServerClient, _ method: String, _ path: String, _ query: [String]
    ) throws -> JSONValue {
        do {
            let target = query.isEmpty ? path : "\(path)?\(query.joined(separator: "&"))"
            return try client.send(method, target, body: set.json)
        } catch let refusal as ServerRefusal {
            let faults = refusal.faults.filter { !$0.pointer.string.isEmpty }
            guard faults.isEmpty else { throw DefinitionFaults(describe(refusal.faults)) }
            throw Failure(refusal.description)
        }
    }
}

extension DefinitionSet {
    /// Returns the set without the ids of experiments and variations, and without members that depend on them.
    ///
    /// - Parameter known: removes the ids only of experiments whose keys this set has; `nil` for all experiments.
    func withoutIDs(of known: DefinitionSet? = nil) -> DefinitionSet {
        // A rule of a flag that is an experiment has the experiment's key.
        let keys = known.map { known in
            Set(known[.experiments].map(\.key.string) + known[.flags].flatMap { Self.rules($0).compactMap(Self.key) })
        }
        var set = self
        set[.experiments] = self[.experiments].map { element in
            guard keys?.contains(element.key.string) ?? true else { return element }
            var element = element
            element.object["id"] = nil
            element.object["traffic_allocation"] = nil
            if let variations = element.object["variations"]?.array {
                element.object["variations"] = .array(variations.map { Self.withoutID($0) })
            }
            return element
        }
        set[.flags] = self[.flags].map { element in
            guard element.object["rules"]?.array != nil else { return element }
            var element = element
            element.object["rules"] = .array(
                Self.rules(element).map { rule in
                    if let keys, let key = Self.key(rule), !keys.contains(key) { return rule }
                    return Self.withoutExperimentID(rule)
                })
            return element
        }
        return set
    }

    private static func withoutExperimentID(_ rule: JSONValue) -> JSONValue {
        guard var object = rule.object, let experiment = object["experiment"] else { return rule }
        object["experiment"] = withoutID(experiment)
        return .object(object)
    }

    private static func rules(_ flag: Element) -> [JSONValue] { flag.object["rules"]?.array ?? [] }

    private static func key(_ rule: JSONValue) -> String? { rule.object?["key"]?.string }

    private static func withoutID(_ value: JSONValue) -> JSONValue {
        guard var object = value.object else { return value }
        object["id"] = nil
        return .object(object)
    }
}

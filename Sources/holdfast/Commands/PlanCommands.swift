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
        let (files, client, query) = (try files.read(), try server.client(), try applying.query())
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

/// A plan in a file, which `holdfast apply` applies if the definitions have not changed since.
struct StoredPlan {
    private let object: JSONObject
    private let path: String

    init(_ definitions: JSONValue, _ basis: String, _ query: [String], _ sdkKey: String?) {
        var object = JSONObject()
        object["holdfast_plan"] = 1
        object["basis"] = .string(basis)
        object["sdk_key"] = sdkKey.map { .string($0) } ?? .null
        object["query"] = .array(query.map { .string($0) })
        object["definitions"] = definitions
        (self.object, path) = (object, "")
    }

    /// - Throws: ``Failure`` if the file is not a plan.
    init(readFrom path: String) throws {
        let content: [UInt8]
        do {
            content = try OpenFile.content(of: path)
        } catch {
            throw Failure("\(path) cannot be read: \(error)")
        }
        guard let object = (try? JSONParser().parse(content))?.object, object["holdfast_plan"] == 1 else {
            throw Failure("\(path) must be a plan that 'holdfast plan --out' has written; name definitions with -f")
        }
        (self.object, self.path) = (object, path)
    }

    func write(to path: String) throws {
        try OpenFile.write(String(decoding: JSONValue.object(object).encoded(), as: UTF8.self) + "\n", to: path)
    }

    /// - Throws: ``Failure`` if the plan is for another project, or if the definitions have changed since.
    func apply(to client: ServerClient, sdkKey: String?, moves: String) throws -> JSONValue {
        let planned = object["sdk_key"]?.string
        guard planned == sdkKey else {
            throw Failure(
                "\(path) must be applied to the project that it was made for, \(planned ?? "the default one"); got "
                    + (sdkKey ?? "the default one"))
        }
        let query = (object["query"]?.array ?? []).compactMap(\.string) + ["moves=\(moves)"]
        do {
            return try client.send(
                "PUT", "/v1/definitions?" + query.joined(separator: "&"), body: object["definitions"],
                ifMatch: object["basis"]?.string ?? "")
        } catch let refusal as ServerRefusal where refusal.status == 412 {
            throw Failure(
                "the definitions must be as they were when \(path) was made; they have changed since: plan again")
        }
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
        let (client, query) = (try server.client(), try applying.query())
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

    static func check(moves: String) throws(Failure) {
        guard ProjectEditor.MovePolicy(rawValue: moves) != nil else {
            throw Failure("--moves must be 'allow' or 'refuse'; got '\(moves)'")
        }
    }
}

/// The response of a server that applies definitions, or would apply them.
struct DefinitionPlan {
    private let response: JSONObject
    /// Whether the ids in the files were removed.
    private let splitsAnew: Bool

    init(_ response: JSONValue, splitsAnew: Bool) {
        self.response = response.object ?? JSONObject()
        self.splitsAnew = splitsAnew
    }

    /// - Throws: an exit status if the change waits for the approval of a second person.
    init(applied response: JSONValue, splitsAnew: Bool) throws {
        if let proposal = response.object?["proposal"]?.object, let id = proposal["id"]?.string {
            let experiments = (proposal["experiments"]?.array ?? []).compactMap(\.string).joined(separator: ", ")
            print(
                "changes running experiments (\(experiments)): waits for another person, POST /v1/proposals/\(id)/approve"
            )
            throw ExitCode(3)
        }
        self.init(response, splitsAnew: splitsAnew)
    }

    /// The version of the definitions that were compared.
    var basis: String { response["basis"]?.string ?? "" }

    private var changes: [JSONObject] { (response["changes"]?.array ?? []).compactMap(\.object) }

    var isEmpty: Bool { changes.isEmpty }

    var warnings: [(pointer: JSONPointer, text: String)] {
        (response["warnings"]?.array ?? []).compactMap(\.object).map {
            (JSONPointer(string: $0["pointer"]?.string ?? ""), $0["message"]?.string ?? "")
        }
    }

    /// Returns a line for each changed element and member, and the numbers of users who get another variation.
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
        return text + (isDone ? "" : movesText + newIDsText + approvalText)
    }

    /// The changes as a table in Markdown.
    var markdown: String {
        guard !isEmpty else { return "Nothing to change.\n" }
        var text = "| | definition | member | before | after |\n| --- | --- | --- | --- | --- |\n"
        func cell(_ value: JSONValue?) -> String {
            "`\(Self.text(value).replacing("|", with: "\\|").replacing("`", with: "'"))`"
        }
        for change in changes {
            let action = change["action"]?.string ?? ""
            let name = "\(change["kind"]?.string ?? "") `\(change["key"]?.string ?? "")`"
            let members = (change["members"]?.array ?? []).compactMap(\.object)
            if members.isEmpty { text += "| \(action) | \(name) | | | |\n" }
            for member in members {
                text += "| \(action) | \(name) | `\(member["member"]?.string ?? "")` | \(cell(member["before"])) | "
                text += "\(cell(member["after"])) |\n"
            }
        }
        return text + "\n" + movesText + newIDsText + approvalText
    }

    private var newIDsText: String {
        let created = changes.filter { $0["action"] == "create" && $0["kind"] == "experiment" }
        guard splitsAnew, !created.isEmpty else { return "" }
        let keys = created.compactMap { $0["key"]?.string }.joined(separator: ", ")
        return "new ids: the hash splits users anew, other than where the definitions come from: \(keys)\n"
    }

    private var approvalText: String {
        let experiments = (response["needs_approval"]?.array ?? []).compactMap(\.string)
        guard !experiments.isEmpty else { return "" }
        return
            "will wait for the approval of another person: changes the running \(experiments.joined(separator: ", "))\n"
    }

    private var movesText: String {
        let moves = response["moves"]?.object
        let (users, others) = (moves?["users"]?.integer ?? 0, moves?["other_experiment"]?.integer ?? 0)
        guard users + others > 0 else { return "no enrolled user would move\n" }
        var text = "\(users) who are enrolled would get another variation"
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
        let keys = known.map { known in
            Set(known[.experiments].map(\.key.string) + known[.flags].flatMap { Self.rules($0).compactMap(Self.key) })
        }
        var set = self
        set[.experiments] = self[.experiments].map { element in
            guard keys?.contains(element.key.string) ?? true else { return element }
            var element = element
            (element.object["id"], element.object["traffic_allocation"]) = (nil, nil)
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
                    guard Self.key(rule).map({ keys?.contains($0) ?? true }) ?? true, var object = rule.object,
                        let experiment = object["experiment"]
                    else { return rule }
                    object["experiment"] = Self.withoutID(experiment)
                    return .object(object)
                })
            return element
        }
        return set
    }

    private static func rules(_ flag: Element) -> [JSONValue] { flag.object["rules"]?.array ?? [] }

    private static func key(_ rule: JSONValue) -> String? { rule.object?["key"]?.string }

    private static func withoutID(_ value: JSONValue) -> JSONValue {
        guard var object = value.object else { return value }
        object["id"] = nil
        return .object(object)
    }
}

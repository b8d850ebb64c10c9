import ArgumentParser
import struct Bucketing.Identifier
import Definitions
import FoundationEssentials
import HoldfastCore
import JSON

/// Copies definitions from one project to another, of the same server or of another one.
struct PromoteCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "promote",
        abstract: "Shows what carrying definitions from one project to another would change, or carries them.",
        discussion: """
            What has the same key is the same; the target keeps its ids. The exit status is 0 if nothing would change or \
            everything is applied, 2 if something would change, 3 if it waits for the approval of a second person.
            """)

    @Argument(
        help: .init("What to carry, such as experiment:checkout (default: everything).", valueName: "kind:key"))
    var selection: [String] = []

    @Option(
        help: .init(
            "The project to read: an SDK key, or the URL of another server, perhaps with #KEY. HOLDFAST_FROM_TOKEN has its "
                + "token, if it is another one.", valueName: "project"))
    var from: String

    @Option(
        help: .init("The project to change, in the same form. HOLDFAST_TO_TOKEN has its token.", valueName: "project"))
    var to: String

    @Flag(help: "Carry them, all or none (default: show the plan).")
    var apply = false

    @Option(help: .init("A file for the plan, which 'holdfast apply' takes.", valueName: "path"))
    var out: String?

    @Option(help: .init("allow: change the variations of enrolled users (default: refuse).", valueName: "policy"))
    var moves = "refuse"

    @OptionGroup var server: ServerOptions
    @OptionGroup var applying: ApplyingOptions

    func run() throws {
        try checkOptions()
        let source = try ProjectAddress(from, "from", server)
        let target = try ProjectAddress(to, "to", server)
        guard source.name != target.name else {
            throw Failure("--from and --to must differ; got '\(from)' twice")
        }
        let query = try applying.query()
        let sourceClient = try source.client()
        let targetClient = try target.client()
        let sourceSet = try Self.definitions(of: sourceClient, from)
        let targetSet = try Self.definitions(of: targetClient, to)
        let selected = try selection.isEmpty ? sourceSet : select(from: sourceSet)
        // Assignments are stored by experiment id, for all projects of a server. Copies on the same server therefore
        // get new ids, unless the projects are to share their users.
        let isShared = applying.share == "allow"
        let splitsAnew = applying.newIds || (source.server == target.server && !isShared)
        // Experiments that the target has already keep the ids of the target.
        let set = splitsAnew ? selected.withoutIDs() : selected.withoutIDs(of: targetSet)
        do {
            try promote(set, to: target, targetClient, query, splitsAnew: splitsAnew)
        } catch let refusal as ServerRefusal {
            throw Self.failure(refusal)
        }
    }

    /// - Throws: ``Failure`` if an option is invalid, or if two options exclude each other.
    private func checkOptions() throws(Failure) {
        try ApplyCommand.check(moves: moves)
        guard !apply || out == nil else {
            throw Failure("--out writes a plan that is applied later; it cannot be used with --apply")
        }
        guard selection.isEmpty || !applying.prune else {
            throw Failure("--prune removes what the source lacks; it cannot be used with a selection")
        }
    }

    /// Compares the definitions with the target's. Applies them, or prints the changes without applying them.
    ///
    /// - Parameter splitsAnew: whether the ids of all experiments were removed, so that the hash splits users
    ///   differently.
    private func promote(
        _ set: DefinitionSet, to target: ProjectAddress, _ client: ServerClient, _ query: [String], splitsAnew: Bool
    ) throws {
        let plan = DefinitionPlan(
            try client.send("POST", Self.path("/v1/definitions/preview", query), body: set.json),
            splitsAnew: splitsAnew)
        for warning in plan.warnings { OpenFile.printError("warning: \(warning.text)\n") }
        guard apply, !plan.isEmpty else {
            print(plan.text(isDone: false), terminator: "")
            if let out { try StoredPlan(set.json, plan.basis, query, target.sdkKey).write(to: out) }
            if !plan.isEmpty { throw ExitCode(2) }
            return
        }
        // `If-Match` ensures that the definitions have not changed since the comparison.
        let response = try client.send(
            "PUT", Self.path("/v1/definitions", query + ["moves=\(moves)"]), body: set.json, ifMatch: plan.basis)
        print(try DefinitionPlan(applied: response, splitsAnew: splitsAnew).text(isDone: true), terminator: "")
    }

    /// Returns a path with query parameters.
    private static func path(_ path: String, _ query: [String]) -> String {
        query.isEmpty ? path : "\(path)?\(query.joined(separator: "&"))"
    }

    /// Describes why the target refuses the definitions, with their kind and key where the server names them.
    private static func failure(_ refusal: ServerRefusal) -> Failure {
        if refusal.status == 412 {
            return Failure("the target's definitions must not change meanwhile; they have: try again")
        }
        let faults = refusal.faults.filter { !$0.pointer.string.isEmpty }
        guard !faults.isEmpty else { return Failure(refusal.description) }
        return Failure("the target refuses it:" + faults.map { "\n  \($0.pointer): \($0.reason)" }.joined())
    }

    /// Reads the definitions of a project.
    ///
    /// - Parameter name: the project in errors.
    private static func definitions(of client: ServerClient, _ name: String) throws -> DefinitionSet {
        do {
            var set = try DefinitionSet(try client.send("GET", "/v1/definitions"))
            // Webhooks are not copied: their URLs differ between environments.
            set[.webhooks] = []
            set.saysWebhooks = false
            return set
        } catch let refusal as ServerRefusal {
            throw Failure("the definitions of \(name) cannot be read: \(refusal)")
        }
    }

    // MARK: Selection

    /// Returns the selected definitions, and the experiments that the rules of selected flags name.
    private func select(from set: DefinitionSet) throws -> DefinitionSet {
        var selected = DefinitionSet()
        for name in selection {
            let (kind, element) = try find(name, in: set)
            Self.add(element, to: &selected[kind])
            guard kind == .flags else { continue }
            let rules = (element.object["rules"]?.array ?? []).compactMap { $0.object?["key"]?.string }
            for experiment in set[.experiments] where rules.contains(experiment.key.string) {
                Self.add(experiment, to: &selected[.experiments])
            }
        }
        return selected
    }

    /// Returns the definition that an argument names as `KIND:KEY`.
    ///
    /// - Throws: ``Failure`` if the argument has another form, or if the source has no such definition.
    private func find(
        _ name: String, in set: DefinitionSet
    ) throws(Failure) -> (kind: DefinitionSet.Kind, element: DefinitionSet.Element) {
        let parts = name.split(separator: ":", maxSplits: 1).map(String.init)
        let kinds = DefinitionSet.Kind.allCases.filter { $0 != .groups && $0 != .webhooks }
        guard parts.count == 2, let kind = kinds.first(where: { $0.noun == parts[0] }) else {
            throw Failure(
                "what to carry must be KIND:KEY with a kind of \(kinds.map(\.noun).joined(separator: ", ")); got "
                    + "'\(name)'")
        }
        guard let element = set[kind].first(where: { $0.key.string == parts[1] }) else {
            let nearest = Spelling.nearest(to: parts[1], among: set[kind].map(\.key.string))
            throw Failure(
                "\(from) must have the \(parts[0]) '\(parts[1])'; it has none"
                    + (nearest.map { "; did you mean '\($0)'?" } ?? ""))
        }
        return (kind, element)
    }

    /// Adds a definition unless it is in the list.
    private static func add(_ element: DefinitionSet.Element, to list: inout [DefinitionSet.Element]) {
        if !list.contains(element) { list.append(element) }
    }
}

extension PromoteCommand {
    /// A project of a server, as `--from` and `--to` name it.
    fileprivate struct ProjectAddress {
        /// The URL of the server; `nil` for the one of ``ServerOptions``.
        let server: String?
        /// The project; `nil` for the server's default project.
        let sdkKey: String?
        private let option: String
        private let options: ServerOptions

        /// - Parameter option: the name of the option, for errors and for the setting of its token.
        init(_ text: String, _ option: String, _ options: ServerOptions) throws(Failure) {
            self.option = option
            self.options = options
            if text.contains("://") {
                let parts = text.split(separator: "#", maxSplits: 1).map(String.init)
                server = parts[0]
                sdkKey = parts.count > 1 ? parts[1] : nil
            } else {
                guard !text.isEmpty, !text.contains("/") else {
                    throw Failure(
                        "--\(option) must be an SDK key, or the URL of a server such as https://staging.example#KEY; got "
                            + "'\(text)'")
                }
                server = nil
                sdkKey = text
            }
        }

        /// Identifies the project, for comparing both.
        var name: String { "\(server ?? "")#\(sdkKey ?? "")" }

        /// Returns a client for the project, with the token of the option's variable or of `HOLDFAST_TOKEN`.
        func client() throws -> ServerClient {
            try options.client(at: server, sdkKey: sdkKey, tokenSetting: "\(option)-token")
        }
    }
}

import ArgumentParser
import HoldfastCore
import JSON

/// What a server responds when it applies definitions, or shows what applying them would change. `holdfast plan`,
/// `apply` and `promote` print it.
struct DefinitionPlan {
    private let response: JSONObject
    /// Whether the ids of experiments were removed, so that the hash splits users differently.
    private let splitsAnew: Bool

    /// Reads the response to a preview.
    init(_ response: JSONValue, splitsAnew: Bool) {
        self.response = response.object ?? JSONObject()
        self.splitsAnew = splitsAnew
    }

    /// Reads the response to a change.
    ///
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

    // MARK: Text

    /// What happens to an element.
    private enum Action: String {
        case create, change, remove

        var sign: String {
            switch self {
            case .create: "+"
            case .change: "~"
            case .remove: "-"
            }
        }
    }

    /// Returns a line for each changed element and member, and the numbers of users who get another variation.
    ///
    /// - Parameter isDone: whether the server has made the changes.
    func text(isDone: Bool) -> String {
        guard !isEmpty else { return "nothing to change\n" }
        var text = ""
        var counts: [Action: Int] = [:]
        for change in changes {
            let action = Action(rawValue: change["action"]?.string ?? "") ?? .change
            counts[action, default: 0] += 1
            text += "\(action.sign) \(change["kind"]?.string ?? "") \(change["key"]?.string ?? "")\n"
            for member in (change["members"]?.array ?? []).compactMap(\.object) {
                text += "    \(member["member"]?.string ?? ""): "
                text += "\(Self.text(member["before"])) -> \(Self.text(member["after"]))\n"
            }
        }
        let words = isDone ? ["created", "changed", "removed"] : ["to create", "to change", "to remove"]
        let sums = zip([Action.create, .change, .remove], words).map { "\(counts[$0] ?? 0) \($1)" }
        text += "\n\(sums.joined(separator: ", "))\n"
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

    /// A line with the experiments that get new ids; empty if there are none.
    private var newIDsText: String {
        let created = changes.filter { $0["action"] == "create" && $0["kind"] == "experiment" }
        guard splitsAnew, !created.isEmpty else { return "" }
        let keys = created.compactMap { $0["key"]?.string }.joined(separator: ", ")
        return "new ids: the hash splits users anew, other than where the definitions come from: \(keys)\n"
    }

    /// A line with the experiments whose change needs approval; empty if there are none.
    private var approvalText: String {
        let experiments = (response["needs_approval"]?.array ?? []).compactMap(\.string)
        guard !experiments.isEmpty else { return "" }
        return
            "will wait for the approval of another person: changes the running \(experiments.joined(separator: ", "))\n"
    }

    /// The number of enrolled users who would move, with the causes.
    private var movesText: String {
        let moves = response["moves"]?.object
        let users = moves?["users"]?.integer ?? 0
        // Users who would get the same variation, but of another experiment.
        let others = moves?["other_experiment"]?.integer ?? 0
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

/// A plan in a file, which `holdfast apply` applies if the definitions have not changed since.
struct StoredPlan {
    private let object: JSONObject
    /// The path of the file for errors; empty for a plan that was not read from one.
    private let path: String

    /// - Parameters:
    ///   - basis: the version of the server's definitions that were compared.
    ///   - query: the query parameters with which the plan was made.
    ///   - sdkKey: the project; `nil` for the default one.
    init(_ definitions: JSONValue, _ basis: String, _ query: [String], _ sdkKey: String?) {
        var object = JSONObject()
        object["holdfast_plan"] = 1
        object["basis"] = .string(basis)
        object["sdk_key"] = sdkKey.map { .string($0) } ?? .null
        object["query"] = .array(query.map { .string($0) })
        object["definitions"] = definitions
        self.object = object
        path = ""
    }

    /// Reads a plan from a file.
    ///
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
        self.object = object
        self.path = path
    }

    func write(to path: String) throws {
        try OpenFile.write(String(decoding: JSONValue.object(object).encoded(), as: UTF8.self) + "\n", to: path)
    }

    /// Sends the definitions, if those of the server have not changed since the plan was made.
    ///
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

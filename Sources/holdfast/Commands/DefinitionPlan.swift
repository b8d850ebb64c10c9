import ArgumentParser
import HoldfastCore
import JSON

/// A server's response to a change of definitions, or to the preview of a change. `holdfast plan`, `apply` and
/// `promote` print it.
struct DefinitionPlan {
    private let response: JSONObject
    /// Whether the ids of experiments were removed. New experiments then get new ids, by which the hash splits users
    /// differently.
    private let splitsAnew: Bool

    /// Reads the response to a preview.
    init(_ response: JSONValue, splitsAnew: Bool) {
        self.response = response.object ?? JSONObject()
        self.splitsAnew = splitsAnew
    }

    /// Reads the response to a change.
    ///
    /// - Throws: exit status 3 if the change waits for the approval of a second person.
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

    /// The version of the server's definitions that were compared.
    var basis: String { response["basis"]?.string ?? "" }

    private var changes: [JSONObject] { (response["changes"]?.array ?? []).compactMap(\.object) }

    /// Whether nothing changes.
    var isEmpty: Bool { changes.isEmpty }

    /// The server's warnings, each with the pointer to the member that it concerns.
    var warnings: [(pointer: JSONPointer, text: String)] {
        (response["warnings"]?.array ?? []).compactMap(\.object).map {
            (JSONPointer(string: $0["pointer"]?.string ?? ""), $0["message"]?.string ?? "")
        }
    }

    // MARK: Text

    /// The change of an element.
    private enum Action: String {
        case create, change, remove

        /// The sign before the element in a text.
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

    /// The numbers of enrolled users who would move, with the causes.
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

    /// Returns a value as JSON; `none` for a missing one.
    private static func text(_ value: JSONValue?) -> String {
        value.map { $0.isNull ? "none" : String(decoding: $0.encoded(), as: UTF8.self) } ?? "none"
    }
}

import Bucketing
import Definitions
public import JSON

/// The numbers of enrolled users whom a change of definitions can move.
///
/// ``PreviewCounter`` reads the stored users page by page. A user who is enrolled while it reads may be missing.
public struct MoveCounts: Sendable {
    /// Users who would get another variation.
    public private(set) var users = 0
    /// Users who would keep their variation's key, but get it from another experiment.
    public private(set) var otherExperiment = 0
    /// The number of users for each move. A user may be counted in several moves, one for each flag.
    private var moves: [DefinitionMoves.Move: Int] = [:]

    public var isEmpty: Bool { users == 0 && otherExperiment == 0 }

    /// Counts one user.
    ///
    /// - Parameter movesOfUser: the moves of the user, at most one for each flag. The user counts once in ``users`` or
    ///   ``otherExperiment``.
    mutating func count(_ movesOfUser: [DefinitionMoves.Move]) {
        guard !movesOfUser.isEmpty else { return }
        if movesOfUser.contains(where: \.changesVariation) { users += 1 } else { otherExperiment += 1 }
        for move in movesOfUser { moves[move, default: 0] += 1 }
    }

    /// Adds the counts of other users.
    mutating func add(_ other: MoveCounts) {
        users += other.users
        otherExperiment += other.otherExperiment
        moves.merge(other.moves, uniquingKeysWith: +)
    }

    /// The moves with their numbers of users, the most frequent first. Equally frequent moves are in the order of their
    /// experiments and then of their causes, so that the same counts give the same response.
    private var sortedMoves: [(move: DefinitionMoves.Move, users: Int)] {
        let sorted = moves.sorted { left, right in
            if left.value != right.value { return left.value > right.value }
            if left.key.experiment != right.key.experiment { return left.key.experiment < right.key.experiment }
            return left.key.textOfCause < right.key.textOfCause
        }
        return sorted.map { (move: $0.key, users: $0.value) }
    }

    /// The number of causes that an error names.
    private static let namedCauses = 3

    /// The counts in the response of a preview and in an error.
    public var json: JSONValue {
        let causes = sortedMoves.map { move, users -> JSONValue in
            var object = JSONObject()
            object["experiment"] = .string(move.experiment.string)
            object["cause"] = .string(move.cause.name)
            if let subject = move.cause.subject { object["by"] = .string(subject.string) }
            object["changes_variation"] = .bool(move.changesVariation)
            object["users"] = .integer(Int64(users))
            return .object(object)
        }
        return [
            "users": .integer(Int64(users)), "other_experiment": .integer(Int64(otherExperiment)),
            "causes": .array(causes),
        ]
    }

    /// The error that refuses a change unless its author allows moves. It names the most frequent causes.
    var refusal: CoreError {
        var causes: [String] = []
        for (move, _) in sortedMoves.prefix(Self.namedCauses) {
            let text = move.cause.description(ofUsersOf: move.experiment)
            if !causes.contains(text) { causes.append(text) }
        }
        let all = users + otherExperiment
        let who = all == 1 ? "1 enrolled user" : "\(all) enrolled users"
        let result =
            otherExperiment == 0
            ? "to another variation"
            : "(\(users) to another variation, \(otherExperiment) to the same one of another experiment)"
        var error = CoreError(
            .conflict,
            "the change can move \(who) \(result): \(causes.joined(separator: "; ")). Nothing was stored; to move them, "
                + "repeat the request with ?moves=allow", about: .moves)
        error.members = [("moves", json)]
        return error
    }
}

extension DefinitionMoves.Move {
    /// The cause and its effect as a text, by which moves of the same experiment are sorted.
    fileprivate var textOfCause: String { "\(cause.name) \(cause.subject?.string ?? "") \(changesVariation)" }
}

extension DefinitionMoves.Cause {
    /// The name in responses.
    fileprivate var name: String {
        switch self {
        case .earlierExperiment: "earlier_experiment"
        case .variationRemoved: "variation_removed"
        case .ruleRemoved: "rule_removed"
        case .experimentRemoved: "experiment_removed"
        case .whitelist: "whitelist"
        case .holdout: "holdout"
        }
    }

    /// The key of the experiment, variation or holdout that the cause is about; `nil` if it is the user's own
    /// experiment.
    fileprivate var subject: Identifier? {
        switch self {
        case .earlierExperiment(let key), .variationRemoved(let key), .holdout(let key): key
        case .ruleRemoved, .experimentRemoved, .whitelist: nil
        }
    }

    /// Returns why users are moved and, where possible, what to do instead.
    fileprivate func description(ofUsersOf experiment: Identifier) -> String {
        switch self {
        case .earlierExperiment(let key):
            "'\(key)' decides before '\(experiment)' and would take them, so place it behind '\(experiment)'"
        case .variationRemoved(let key):
            "'\(experiment)' would lose the variation '\(key)', so give it the weight 0 instead"
        case .ruleRemoved:
            "the flag would lose the rule '\(experiment)', so keep the rule and set its `status` instead"
        case .experimentRemoved: "'\(experiment)' would be gone, so keep it and set its `status` instead"
        case .holdout(let key): "the holdout '\(key)' would keep them out of '\(experiment)'"
        case .whitelist: "the datafile forces another variation of '\(experiment)' on them"
        }
    }
}

public import Bucketing
public import Chronology
public import JSON

/// The body of `POST /v1/experiments/{key}/conclude`: `{"winner":KEY or null,"reason":TEXT?}`.
public struct ConclusionInput: Sendable, Equatable {
    /// The key of the variation that everybody gets; `nil` for none.
    public var winner: Identifier?
    /// Why the experiment is concluded, as a text for people.
    public var reason = ""

    /// The maximum length of ``reason`` in bytes.
    private static let longestReason = 4_096

    public init(winner: Identifier?, reason: String = "") {
        self.winner = winner
        self.reason = reason
    }

    /// - Throws: 400 or 422 if a member is wrong.
    public init(_ value: JSONValue, at place: JSONPointer = []) throws(CoreError) {
        let object = try value.object(
            "a conclusion", knowing: ["winner", "reason"], ignoring: ["concluded_at", "author", "frozen_at"], at: place)
        guard object["winner"] != nil else {
            throw CoreError(
                .unprocessable, "`winner` is required: the key of a variation, or null for none",
                at: place.appending("winner"))
        }
        winner = try object.optionalText("winner", in: place).map { Identifier($0) }
        reason = try object.optionalText("reason", in: place) ?? ""
        guard reason.utf8.count <= Self.longestReason else {
            throw CoreError(
                .unprocessable, "`reason` must have at most \(Self.longestReason) bytes; got \(reason.utf8.count)",
                at: place.appending("reason"))
        }
    }
}

/// How an experiment was concluded: who won, why, and when.
package struct Conclusion: Sendable, Equatable {
    /// The id of the variation that everybody gets; `nil` if there is none.
    package var winner: Identifier?
    /// The status that the experiment gets back when it is reopened.
    var formerStatus: String
    /// When the results were frozen; `nil` if an earlier release concluded the experiment. Changing the winner or the
    /// reason does not change the time.
    package var frozenAt: Instant?
    var reason = ""
    /// When the winner and the reason were last set, as an RFC 3339 time. Empty if it is not known.
    var concludedAt = ""
    /// Who concluded the experiment.
    var author = ""

    init(
        winner: Identifier?, formerStatus: String, frozenAt: Instant?, reason: String, at time: Instant,
        by author: String
    ) {
        self.winner = winner
        self.formerStatus = formerStatus
        self.frozenAt = frozenAt
        self.reason = reason
        concludedAt = time.rfc3339
        self.author = author
    }

    /// Reads a conclusion from a datafile.
    ///
    /// - Parameters:
    ///   - annotation: see ``annotation``.
    ///   - details: see ``details``.
    init(_ annotation: JSONObject, _ details: JSONObject?) {
        winner = annotation.identifier("winner")
        formerStatus = annotation["status"]?.string ?? ExperimentStatus.running.rawValue
        frozenAt = annotation["frozenAt"]?.instant
        reason = details?["reason"]?.string ?? ""
        concludedAt = details?["concluded_at"]?.string ?? ""
        author = details?["author"]?.string ?? ""
    }

    /// The part that decisions need. It is stored in the annotation of the experiment.
    var annotation: JSONValue {
        var object = JSONObject()
        object["winner"] = winner.map { JSONValue($0) } ?? .null
        object["status"] = .string(formerStatus)
        object["frozenAt"] = frozenAt.map { .instant($0) }
        return .object(object)
    }

    /// The part that only people need. It is stored in the details of the experiment, which SDKs do not get.
    var details: JSONValue {
        ["reason": .string(reason), "concluded_at": .string(concludedAt), "author": .string(author)]
    }

    /// Returns the input that concludes the experiment in the same way.
    package func input(of experiment: ExperimentDefinition) -> ConclusionInput {
        ConclusionInput(
            winner: winner.flatMap { id in experiment.variations.last { $0.id == id }?.key }, reason: reason)
    }

    /// Returns the member `conclusion` of a response.
    package func description(of experiment: ExperimentDefinition) -> JSONValue {
        [
            "winner": input(of: experiment).winner.map { JSONValue($0) } ?? .null, "reason": .string(reason),
            "concluded_at": .string(concludedAt), "author": .string(author),
            "frozen_at": frozenAt.map { .string($0.rfc3339) } ?? .null,
        ]
    }
}

extension ProjectDefinitions {
    /// Concludes an experiment, or changes its conclusion. Nobody is enrolled any more, and everybody in the audience
    /// gets the winner. Assignments stay.
    ///
    /// - Throws: 409 if the experiment has not run, or if it belongs to a flag of an uploaded datafile; 422 if the
    ///   winner is not one of its variations.
    public mutating func conclude(
        _ key: Identifier, as input: ConclusionInput, at time: Instant, by author: String
    ) throws(CoreError) {
        guard var experiment = experiments[key] else { return }
        let status = ExperimentStatus(name: experiment.status)
        guard status == .running || status == .paused || status == .concluded else {
            throw CoreError(
                .conflict,
                "an experiment must be running or paused to be concluded; '\(key)' is "
                    + ExperimentStatus.name(of: experiment.status))
        }
        if let flag = flags(ofExperiment: experiment.id).first(where: { $0.rules == nil }) {
            throw CoreError(
                .conflict,
                "an experiment of a flag that a datafile brought must be concluded there; the flag '\(flag.key)' has '\(key)'"
            )
        }
        let variation = input.winner.flatMap { winner in experiment.variations.last { $0.key == winner } }
        if let winner = input.winner, variation == nil {
            throw CoreError(
                .unprocessable,
                "`winner` must be a variation of the experiment; got '\(winner)'"
                    + Spelling.hint(for: winner, among: experiment.variations.map(\.key)), at: ["winner"])
        }
        let former = experiment.conclusion
        experiment.conclusion = Conclusion(
            winner: variation?.id, formerStatus: former?.formerStatus ?? experiment.status,
            frozenAt: former == nil ? time : former?.frozenAt, reason: input.reason, at: time, by: author)
        experiment.status = ExperimentStatus.concluded.rawValue
        // The step of the ramp begins again if the experiment is reopened.
        if experiment.details.ramp?.state.status == .active {
            experiment.details.ramp?.leaveStep(as: .waiting, at: time)
        }
        experiments.set(experiment)
        if let id = experiment.groupID { try allocateGroup(id) }
    }

    /// Reopens a concluded experiment: it gets its former status back, and users their former variations.
    ///
    /// - Throws: 409 if the experiment is not concluded; 422 if its group has no room for it any more.
    public mutating func reopen(_ key: Identifier) throws(CoreError) {
        guard var experiment = experiments[key] else { return }
        guard experiment.isConcluded, let conclusion = experiment.conclusion else {
            throw CoreError(
                .conflict,
                "an experiment must be concluded to be reopened; '\(key)' is "
                    + ExperimentStatus.name(of: experiment.status))
        }
        experiment.status = conclusion.formerStatus
        experiment.conclusion = nil
        experiments.set(experiment)
        if let id = experiment.groupID { try allocateGroup(id) }
    }
}

public import Bucketing
public import Definitions
public import JSON
public import Storage

/// What people say about an experiment, and when it changes by itself. Decisions do not depend on it, and SDKs do not get
/// it.
struct ExperimentDetails: Sendable, Equatable {
    var name = ""
    var description = ""
    var hypothesis = ""
    var owner = ""
    var tags: [Identifier] = []
    var metrics = ExperimentMetrics()
    var schedule: ExperimentSchedule?
    var ramp: Ramp?
    var bandit: Bandit?
    var plan = ExperimentPlan()

    static let members = MemberTable<ExperimentDetails>(
        "an experiment", blank: ExperimentDetails(),
        [
            Member(
                "name", \.name, .text(atMost: 255), "A name for people. SDKs do not get it.", .cleared),
            Member(
                "description", \.description, .text(atMost: 4_096),
                "What is tested. SDKs do not get it.", .cleared),
            Member(
                "hypothesis", \.hypothesis, .text(atMost: 4_096),
                "What is expected, and why. SDKs do not get it.", .cleared),
            Member(
                "owner", \.owner, .text(atMost: 255), "Who is responsible. SDKs do not get it.",
                .cleared),
            Member(
                "tags", \.tags, .tags, "Labels. SDKs do not get them.",
                .init(isShownIfSet: true, isStored: true, isCopied: true, fileDefault: [])),
            Member("metrics", \.metrics, .metrics(), "", .cleared),
            Member("schedule", \.schedule, .schedule, "", .own) { $0?.replacing($1) },
            Member("ramp", \.ramp, .ramp, "", .own) { $0?.replacing($1) },
            Member("bandit", \.bandit, .bandit, "", .own) { $0?.replacing($1) },
            Member(
                "plan", \.plan, of: ExperimentPlan.members, .plan,
                "By which rule it is to be decided. Fixed when it starts: later changes show.", .cleared),
        ])

    init() {}

    /// Reads what is stored.
    init(_ object: JSONObject) { Self.members.readStored(object, into: &self) }

    /// What a search looks through.
    var searchedTexts: [String] {
        [name, description, hypothesis, owner].filter { !$0.isEmpty } + tags.map(\.string)
    }
}

extension Form where Value == ExperimentSchedule? {
    fileprivate static var schedule: Self {
        Form(
            read: { ExperimentSchedule($0.value, at: $0.place, &$1) }, write: { $0?.json },
            file: { $0.map { .object(($0.json.object ?? JSONObject()).keeping(["start_at", "end_at"])) } },
            stored: { $0.object.map { ExperimentSchedule($0) } })
    }
}

extension Form where Value == Ramp? {
    fileprivate static var ramp: Self {
        Form(
            read: { given, faults in
                let ramp = Ramp(given.value, at: given.place, &faults)
                if let traffic = given.object["traffic"]?.double, (0...100).contains(traffic) {
                    faults.add("`traffic` must be left out, because the `ramp` sets it", at: ["traffic"])
                }
                return ramp
            },
            write: { $0?.json },
            file: { $0.map { .object(($0.json.object ?? JSONObject()).keeping(["steps", "on_alarm", "keep"])) } },
            stored: { $0.object.flatMap { Ramp(stored: $0) } })
    }
}

extension Form where Value == Bandit? {
    fileprivate static var bandit: Self {
        Form(
            read: { Bandit($0.value, at: $0.place, &$1) }, write: { $0?.json },
            stored: { $0.object.flatMap { Bandit(stored: $0) } })
    }
}

extension Form where Value == ExperimentPlan {
    /// What was planned at the start is the server's.
    fileprivate static var plan: Self {
        Form(
            read: { _, _ in nil }, write: { $0.json },
            file: { $0.definition.isEmpty ? JSONValue?.none : .object($0.definition) },
            stored: { ExperimentPlan(stored: $0) })
    }
}

extension JSONObject {
    /// Returns the object with some of its members, without those that are null.
    func keeping(_ names: [String], evenNull: Bool = false) -> JSONObject {
        var object = JSONObject()
        for member in self where names.contains(member.key) && (evenNull || !member.value.isNull) {
            object[member.key] = member.value
        }
        return object
    }
}

extension AssignmentLifetime {
    /// The member of bodies and files.
    public static let apiMember = "assignment_ttl"

    /// Reads the lifetime from the body of a request, of which null leaves it to the project or the server.
    ///
    /// - Returns: `nil` if it is absent.
    /// - Throws: 400 or 422 if it is none.
    public static func change(in object: JSONObject) throws(CoreError) -> AssignmentLifetime?? {
        guard object[apiMember] != nil else { return nil }
        guard let text = try object.optionalText(apiMember) else { return .some(nil) }
        guard let lifetime = AssignmentLifetime(text) else {
            throw CoreError(.unprocessable, "`\(apiMember)` must be \(form); got '\(text)'", at: [apiMember])
        }
        return .some(lifetime)
    }
}

/// What an admin says of the end of an experiment: `{"winner":KEY or null,"reason":TEXT?}`.
public struct ConclusionInput: Sendable, Equatable {
    /// The key of the variation that everybody gets; `nil` for none.
    public var winner: Identifier?
    public var reason = ""

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

/// How an experiment ended.
struct Conclusion: Sendable, Equatable {
    /// The id of the variation that everybody gets; `nil` if there is none.
    var winner: Identifier?
    /// What the experiment has again when it is reopened.
    var formerStatus: String
    /// When its results were kept; `nil` if an earlier release concluded it. It stays if the winner or the reason is
    /// changed.
    var frozenAt: Timestamp?
    var reason = ""
    var concludedAt = ""
    var author = ""

    init(
        winner: Identifier?, formerStatus: String, frozenAt: Timestamp?, reason: String, at time: Timestamp,
        by author: String
    ) {
        self.winner = winner
        self.formerStatus = formerStatus
        self.frozenAt = frozenAt
        self.reason = reason
        concludedAt = time.rfc3339
        self.author = author
    }

    /// - Parameter details: what SDKs do not get.
    init(_ annotation: JSONObject, _ details: JSONObject?) {
        winner = annotation.identifier("winner")
        formerStatus = annotation["status"]?.string ?? ExperimentStatus.running.rawValue
        frozenAt = annotation["frozenAt"]?.integer
        reason = details?["reason"]?.string ?? ""
        concludedAt = details?["concluded_at"]?.string ?? ""
        author = details?["author"]?.string ?? ""
    }

    var annotation: JSONValue {
        var object = JSONObject()
        object["winner"] = winner.map { JSONValue($0) } ?? .null
        object["status"] = .string(formerStatus)
        object["frozenAt"] = frozenAt.map { .integer($0) }
        return .object(object)
    }

    var details: JSONValue {
        ["reason": .string(reason), "concluded_at": .string(concludedAt), "author": .string(author)]
    }

    func description(of experiment: ExperimentDefinition) -> JSONValue {
        let key = winner.flatMap { id in experiment.variations.last { $0.id == id }?.key }
        return [
            "winner": key.map { JSONValue($0) } ?? .null, "reason": .string(reason),
            "concluded_at": .string(concludedAt), "author": .string(author),
            "frozen_at": frozenAt.map { .string($0.rfc3339) } ?? .null,
        ]
    }
}

extension ProjectDefinitions {
    /// The experiments that the change concludes, whose results are to be kept.
    func freezes(since former: ProjectDefinitions?) -> [ResultsFreeze] {
        experiments.compactMap { experiment in
            guard let time = experiment.conclusion?.frozenAt,
                former?.experiments[experiment.key]?.conclusion?.frozenAt != time
            else { return nil }
            return ResultsFreeze(
                experimentID: experiment.id, frozenAt: time,
                definition: FrozenExperiment.definition(of: experiment.source))
        }
    }

    /// Concludes an experiment, or changes how it was concluded: nobody is enrolled any more, and everybody in its
    /// audience gets the winner. Assignments stay.
    ///
    /// - Throws: 409 if the experiment has not run, or a flag that a datafile brought has it; 422 if it has no such
    ///   variation.
    public mutating func conclude(
        _ key: Identifier, as input: ConclusionInput, at time: Timestamp, by author: Author
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
            frozenAt: former == nil ? time : former?.frozenAt, reason: input.reason, at: time, by: author.name)
        experiment.status = ExperimentStatus.concluded.rawValue
        // The step begins again if the experiment is reopened.
        if experiment.details.ramp?.state.status == .active {
            experiment.details.ramp?.end(.waiting, at: time, nil, nil)
        }
        experiments.set(experiment)
        if let id = experiment.groupID { try allocateGroup(id) }
    }

    /// Gives everybody back what they had before an experiment was concluded.
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

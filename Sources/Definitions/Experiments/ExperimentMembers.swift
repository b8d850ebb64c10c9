package import Bucketing
import JSON

/// The part of an experiment that SDKs do not get: names and texts for people, metrics, the plan, and what changes the
/// experiment automatically: schedule, ramp and bandit. Decisions do not depend on it.
package struct ExperimentDetails: Sendable, Equatable {
    package var name = ""
    package var description = ""
    package var hypothesis = ""
    package var owner = ""
    package var tags: [Identifier] = []
    package var metrics = ExperimentMetrics()
    package var schedule: ExperimentSchedule?
    package var ramp: Ramp?
    package var bandit: Bandit?
    package var plan = DecisionRule()

    private static let none = ExperimentDetails()

    init() {}

    /// Reads stored details.
    init(_ object: JSONObject) {
        var view = ExperimentView.members.blank
        ExperimentView.members.readStored(object, into: &view)
        self = view.definition.details
    }

    /// The details as they are stored; empty for those of a new experiment.
    var stored: JSONObject {
        // Most experiments have no details; skip the table for them.
        guard self != Self.none else { return JSONObject() }
        var view = ExperimentView.members.blank
        view.definition.details = self
        var object = JSONObject()
        ExperimentView.members.store(view, in: &object)
        return object
    }

    /// The texts that a search looks through.
    package var searchedTexts: [String] {
        [name, description, hypothesis, owner].filter { !$0.isEmpty } + tags.map(\.string)
    }
}

/// An experiment as people see it: the form that `PUT` takes, `GET` shows and files have.
///
/// Most members are properties of the ``definition``. For a member that a definition has in another form, the view has
/// a property of its own: `traffic`, for example, is a part of the definition's allocation. ``ExperimentChange`` turns
/// such members of a request into changes of the definition.
package struct ExperimentView: Sendable, Equatable {
    package struct Variation: Sendable, Equatable {
        package var key: Identifier
        package var id: Identifier?
        /// Relative to the weights of the other variations.
        package var weight: Double?
        /// The percentage of all users who get the variation; only in responses.
        package var share: Double?

        package init(key: Identifier, id: Identifier? = nil, weight: Double? = nil, share: Double? = nil) {
            self.key = key
            self.id = id
            self.weight = weight
            self.share = share
        }
    }

    package var definition: ExperimentDefinition
    package var id: Identifier
    package var variations: [Variation] = []
    /// The percentage of users who are enrolled.
    package var traffic = 100.0
    /// The name of the group of mutually exclusive experiments.
    package var group: String?

    package init(_ definition: ExperimentDefinition = ExperimentDefinition(id: "", key: "")) {
        self.definition = definition
        id = definition.id
    }

    /// The members of an experiment. To add one, add a line here, and a property to this type, to
    /// ``ExperimentDefinition`` or to ``ExperimentDetails``.
    package static let members = MemberTable<ExperimentView>(
        "an experiment", blank: ExperimentView(),
        showing: ["audience_conditions", "traffic_allocation", "sdk_key", "revision", "conclusion", "proposals"],
        [
            Member("id", \.id, .experimentID, "", .init(isOwned: true)),
            Member(
                "status", \.definition.status, .status,
                "`draft`: served to nobody but overrides; only an experiment that has not started can be one. `concluded` is set "
                    + "by `conclude`; another status reopens. In requests upper and lower case are the same. The datafile that "
                    + "SDKs read has `Running`, `Not started`, …"),
            Member(
                "variations", \.variations, .variations,
                "Keys, split equally; or objects with a weight each. Weights are relative: 1:1, 50:50 and 5000:5000 are the "
                    + "same. A variation that was removed and is added again gets its former id.",
                .init(readsNull: true, isOwned: true)),
            Member(
                "traffic", \.traffic, .number(0...100),
                "The percentage of users who are enrolled; 100 for a new experiment.",
                .init(isCopied: true, isOwned: true)),
            Member(
                "enrollment", \.definition.enrollment, .choice(),
                "`closed`: enrolled users keep their variation and are measured, and nobody else gets one; `traffic` and `share` "
                    + "are those that apply once it is open again. `open` for a new experiment.", .init(isOwned: true)),
            Member(
                "group", \.group, Form<String>.key.optional(),
                "The group of mutually exclusive experiments. They share the traffic, so that a user is enrolled in at most one. "
                    + "Null removes the experiment from its group. Of a group of an uploaded datafile the id is shown.",
                .init(isClearedByNull: true, isOwned: true)),
            Member(
                "audience", \.definition.audience, .audience,
                "Conditions in the format of a datafile's typed audience, in which `{\"segment\":\"…\"}` names a segment, "
                    + "`type` may be absent, and `match` may be `in` or `not_in`; null admits everybody. Of a datafile's "
                    + "experiment it is shown with the conditions of each audience in the place of its id.",
                .init(isClearedByNull: true, isCopied: true, isOwned: true)),
            Member(
                AssignmentLifetime.apiMember, \.definition.assignmentLifetime,
                Form<AssignmentLifetime>.assignmentLifetime.optional(),
                "How long users keep their variation after it was last saved: a time from 1s to 3660d such as `12h` or `30d`, or "
                    + "`forever`. Without it the project says it. It holds for what is saved from then on; overrides have their "
                    + "own time. Devices that decide by themselves keep to it, too.",
                .init(isClearedByNull: true, isShownIfSet: true, isCopied: true)),
            Member(
                "name", \.definition.details.name, .text(atMost: 255), "A name for people. SDKs do not get it.",
                .cleared),
            Member(
                "description", \.definition.details.description, .text(atMost: 4_096),
                "What is tested. SDKs do not get it.", .cleared),
            Member(
                "hypothesis", \.definition.details.hypothesis, .text(atMost: 4_096),
                "What is expected, and why. SDKs do not get it.", .cleared),
            Member(
                "owner", \.definition.details.owner, .text(atMost: 255), "Who is responsible. SDKs do not get it.",
                .cleared),
            Member(
                "tags", \.definition.details.tags, .tags, "Labels. SDKs do not get them.",
                .init(isShownIfSet: true, isStored: true, isCopied: true, fileDefault: [])),
            Member("metrics", \.definition.details.metrics, .metrics(), "", .cleared),
            Member("schedule", \.definition.details.schedule, .schedule, "", .own) { $0?.replacing($1) },
            Member("ramp", \.definition.details.ramp, .ramp, "", .own) { $0?.replacing($1) },
            Member("bandit", \.definition.details.bandit, .bandit, "", .own) { $0?.replacing($1) },
            Member(
                "plan", \.definition.details.plan, of: DecisionRule.members, .plan,
                "By which rule it is to be decided. Fixed when it starts: later changes show.", .cleared),
        ])
}

package import Bucketing
package import JSON

/// A flag as people see it: the form that `PUT` takes, `GET` shows and files have. ``FlagChange`` applies it to a
/// ``FlagDefinition``.
package struct FlagView: Sendable {
    /// A rule. The first rule that applies to a user decides.
    package struct Rule: Sendable, Equatable {
        /// `nil` in a request that leaves it to the server.
        package var key: Identifier?
        /// `nil` for everybody.
        package var audience: JSONValue?
        /// `nil` only if a datafile lacks the experiment.
        package var choice: Choice?

        package init(key: Identifier? = nil, audience: JSONValue? = nil, choice: Choice? = nil) {
            self.key = key
            self.audience = audience
            self.choice = choice
        }
    }

    /// The effect of a rule on its users.
    package enum Choice: Sendable, Equatable {
        /// One variation for a percentage of the users; `nil` only if a datafile delivers none.
        case delivery(variation: Identifier?, traffic: Double)
        /// An experiment, with the members that a request or a file has. The weights are those of the view's
        /// variations, the baseline first.
        case experiment(Given<ExperimentView>)
    }

    package var definition: FlagDefinition
    /// `nil` for a flag of a datafile that has no single value.
    package var type: Variable.Kind?
    package var variations: [FlagDefinition.Variation] = []
    package var rules: [Rule] = []
    /// The variation of users to whom no rule applies; `nil` if a datafile delivers none.
    package var otherwise: Identifier?

    package init(_ definition: FlagDefinition = FlagDefinition(key: "", .experiment)) {
        self.definition = definition
    }

    /// The members of a flag. To add one, add a line here, and a property to this type or to ``FlagDefinition``.
    package static let members = MemberTable<FlagView>(
        "a flag", blank: FlagView(), showing: ["defined_by", "version", "sdk_key", "revision", "proposals"],
        [
            Member(
                "type", \.type, Form<Variable.Kind>.choice().optional(),
                "Required for a new flag; never changes. Null for a flag of a datafile that has several variables, or one that "
                    + "is not named `value`.", .init(isOwned: true)),
            Member(
                "enabled", \.definition.isEnabled, .bool,
                "Whether the rules apply; `false` turns the flag off for everybody, but keeps the rules. `true` for a new flag.",
                .init(isOwned: true)),
            Member(
                "variations", \.variations, .flagVariations, "For a new boolean flag, by default `on` and `off`.",
                .init(isOwned: true)),
            Member(
                "rules", \.rules, .rules,
                "In order; the first rule that applies to a user decides. The list replaces the former one.",
                .init(isOwned: true, fileDefault: [])),
            Member(
                "otherwise", \.otherwise, Form<Identifier>.otherwise.optional(),
                "The variation of users to whom no rule applies. For a new flag, by default the boolean variation `false`, or "
                    + "else the first.", .init(isOwned: true)),
            Member(
                "description", \.definition.description, .text(atMost: 4_096), "",
                .init(isClearedByNull: true, isStored: true)),
            Member(
                "tags", \.definition.shownTags, Form<[Identifier]>.tags.omitted(if: []),
                "Labels by which clients choose flags.", .init(fileDefault: [])),
        ])
}

extension FlagDefinition {
    /// The members of the experiment in a rule.
    package static let experimentMembers = MemberTable<ExperimentView>(
        "an experiment", blank: ExperimentView(),
        ExperimentView.members["id"]
            + [
                Member(
                    "weights", \.variations, .weights,
                    "The relative weight of each of its variations, the baseline first; by default equal weights of all "
                        + "variations.")
            ] + ExperimentView.members["traffic", "status", "enrollment", "group"])
}

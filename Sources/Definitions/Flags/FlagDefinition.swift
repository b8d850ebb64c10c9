package import Bucketing
package import JSON

/// A flag of a project, as a value that an edit changes. The project's datafile is generated from it; decisions use the
/// compiled ``Flag`` of the datafile.
package struct FlagDefinition: KeyedDefinition {
    package struct Variation: Sendable, Equatable {
        package var key: Identifier
        package var value: JSONValue
    }

    /// A targeted rollout of a variation to a percentage of the audience.
    package struct Delivery: Sendable, Equatable {
        /// The key of the variation.
        package var variation: Identifier
        /// The percentage of the audience who get the variation, 0 to 100.
        package var traffic: Double
    }

    /// A rule. The first rule that applies to a user decides.
    package struct Rule: Sendable, Equatable {
        package var key: Identifier
        /// `nil` for everybody.
        package var audience: JSONValue?
        /// `nil` if the rule is the experiment with the rule's key, which has its own weights and traffic.
        package var delivery: Delivery?

        /// The audience in the form that SDKs can evaluate.
        var datafileAudience: JSONValue? { audience.map(ConditionDialect.datafileForm) }
    }

    /// The content of a flag that was defined over the API: its variations, and the rules by which users get them.
    package struct Rules: Sendable, Equatable {
        package var type: Variable.Kind
        package var variations: [Variation] = []
        package var rules: [Rule] = []
        /// The key of the variation of users to whom no rule applies. Empty only until the first change sets it.
        package var otherwise: Identifier = ""
    }

    /// Who defines the flag.
    package enum Content: Sendable, Equatable {
        /// The API.
        case rules(Rules)
        /// The flag serves the experiment of the same key.
        case experiment
        /// A datafile brought the flag.
        case datafile(rolloutID: String, experimentIDs: [Identifier])
    }

    package let key: Identifier
    /// Whether the flag is on. In the datafile, a flag that is off has no deliveries and its running experiments are
    /// paused, so that every SDK gives the default values.
    package var isEnabled = true
    package var description = ""
    /// Labels by which clients choose flags; `nil` if none were given.
    package var tags: [Identifier]?
    /// The ``tags``; empty if none were given.
    var shownTags: [Identifier] {
        get { tags ?? [] }
        set { tags = newValue }
    }
    /// The revision of the datafile in which the flag or one of its experiments last changed.
    package var version: Int64?
    package var content: Content
    /// The JSON object from the datafile. Writing the flag keeps the members that Holdfast does not know.
    package var source = JSONObject()

    package var listKey: Identifier { key }

    /// The keys of the experiments that are rules; for a flag of a datafile, the ids of its experiments.
    package var names: [Identifier] {
        switch content {
        case .rules(let content): content.rules.lazy.filter { $0.delivery == nil }.map(\.key)
        case .experiment: []
        case .datafile(_, let ids): ids
        }
    }

    package init(key: Identifier, _ content: Content) {
        self.key = key
        self.content = content
    }

    /// The rules of a flag that was defined over the API; `nil` for any other flag.
    package var rules: Rules? {
        if case .rules(let rules) = content { rules } else { nil }
    }

    package func rule(_ key: Identifier) -> Rule? { rules?.rules.first { $0.key == key } }
}

import Bucketing
public import Definitions
public import JSON

/// What an admin defines of an experiment with `PUT /v1/experiments/{key}`; absent members keep their values. What members
/// there are says ``ExperimentView``; what they do to an experiment say the rules of ``apply(to:)``.
public struct ExperimentChange: Sendable {
    public var key: String
    var given: Given<ExperimentView>

    /// Whether anybody new is enrolled.
    public enum Enrollment: String, Sendable, CaseIterable {
        case open
        /// Enrolled users keep their variation, and nobody else gets one.
        case closed
    }

    /// The maximum number of variations.
    static let variationLimit = 1_000
    static let greatestWeight = 1_000_000.0

    init(key: String, _ given: Given<ExperimentView> = Given(draft: ExperimentView())) {
        self.key = key
        self.given = given
    }

    /// - Throws: 400 if the value is not an object; 422 with every wrong member.
    public init(_ value: JSONValue, key: String) throws(CoreError) {
        self.init(key: key, try ExperimentView.members.read(value, key: key))
    }

    mutating func give(_ variations: [ExperimentView.Variation]) {
        given.set("variations", \.variations, to: variations)
    }

    // MARK: What is given

    var variations: [ExperimentView.Variation]? { given.value("variations", \.variations) }
    /// The percentage of users who are enrolled, 0 to 100.
    public var traffic: Double? { given.value("traffic", \.traffic) }
    var status: ExperimentStatus? {
        given.value("status", \.definition.status).flatMap { ExperimentStatus(rawValue: $0) }
    }
    /// Conditions in the form of a datafile's audience; `null` admits everybody.
    var audience: JSONValue? { given.value("audience", \.definition.audience) ?? nil }
    var details: ExperimentDetails { given.draft.definition.details }
}

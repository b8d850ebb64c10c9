import Bucketing
public import Chronology
public import JSON

/// The body of `PUT /v1/experiments/{key}`. Members that it lacks keep their values.
///
/// ``ExperimentView`` lists the members; ``apply(to:)`` applies them to an experiment.
public struct ExperimentChange: ElementChange {
    public var key: String
    var given: Given<ExperimentView>

    /// Whether users who are not enrolled yet can be.
    public enum Enrollment: String, Sendable, CaseIterable {
        case open
        /// Enrolled users keep their variation, and nobody else gets one.
        case closed
    }

    /// The maximum number of variations.
    static let variationLimit = 1_000
    /// The maximum weight of a variation.
    static let greatestWeight = 1_000_000.0

    init(key: String, _ given: Given<ExperimentView> = Given(draft: ExperimentView())) {
        self.key = key
        self.given = given
    }

    /// - Throws: 400 if the value is not an object; 422 with every wrong member.
    public init(_ value: JSONValue, key: String) throws(CoreError) {
        self.init(key: key, try ExperimentView.members.read(value, key: key))
    }

    /// Sets the variations as if they were in the body.
    mutating func give(_ variations: [ExperimentView.Variation]) {
        given.set("variations", \.variations, to: variations)
    }

    // MARK: Members of the body

    var variations: [ExperimentView.Variation]? { given.value("variations", \.variations) }
    /// The percentage of users who are enrolled, 0 to 100.
    public var traffic: Double? { given.value("traffic", \.traffic) }
    var status: ExperimentStatus? {
        given.value("status", \.definition.status).flatMap { ExperimentStatus(rawValue: $0) }
    }
    /// Conditions in the form of a datafile's audience; `null` admits everybody.
    var audience: JSONValue? { given.value("audience", \.definition.audience) ?? nil }
    /// The details in the body. Those that it lacks have the values of a new experiment; see ``Given/has(_:)``.
    var details: ExperimentDetails { given.draft.definition.details }

    // MARK: Warnings

    public func warnings(changing former: JSONValue?, at now: Instant) -> [DefinitionWarning] {
        [startWarning(at: now), weightWarning(changing: former)].compactMap { $0 }
    }

    private func startWarning(at now: Instant) -> DefinitionWarning? {
        guard given.has("schedule"), let start = details.schedule?.startAt, start < now else { return nil }
        let reason = "`start_at` should be in the future; got \(start.rfc3339), at which a draft starts immediately"
        return DefinitionWarning(
            code: .startInPast, fault: JSONFault(pointer: ["schedule", "start_at"], reason: reason))
    }

    /// Warns that variations without weights replace unequal weights by equal ones.
    private func weightWarning(changing former: JSONValue?) -> DefinitionWarning? {
        guard let variations, variations.allSatisfy({ $0.weight == nil }) else { return nil }
        var weights: [String: Double] = [:]
        for variation in former?.object?["variations"]?.array ?? [] {
            guard let key = variation.object?["key"]?.string else { continue }
            weights[key] = variation.object?["weight"]?.double
        }
        let kept = variations.compactMap { weights[$0.key.string] }
        guard Set(kept).count > 1 else { return nil }
        let ratio = kept.map(\.shortest).joined(separator: ":")
        return DefinitionWarning(
            code: .weightsReset,
            fault: JSONFault(
                pointer: ["variations"],
                reason: "`variations` without `weight` get equal weights instead of \(ratio); to keep it, give `weight`"
            ))
    }

    public var audiences: [(conditions: JSONValue, place: JSONPointer)] {
        audience.map { [($0, JSONPointer().appending("audience"))] } ?? []
    }
}

public import JSON

/// A share of users that are kept out of experiments, so that what all of these bring together can be measured.
public final class Holdout: Sendable {
    public let id: Identifier
    public let key: Identifier
    public let status: String
    public let variations: [Variation]
    public let trafficAllocation: TrafficAllocation
    /// The rules it applies to; `nil` for all flags.
    public let includedRules: [Identifier]?
    /// Whether rules of the type targeted delivery are evaluated nevertheless.
    public let excludesTargetedDeliveries: Bool
    /// As the datafile has it: `audienceConditions`, or else `audienceIds`.
    public let audienceConditions: JSONValue

    /// Who is held out; `nil` for everyone.
    let audience: Condition?
    /// Whether users are bucketed at all.
    let isBucketed: Bool

    init(
        _ node: DatafileReader.Node, includedRules: [Identifier]?,
        audiences: [Identifier: Condition], _ reader: inout DatafileReader
    ) {
        id = reader.id("id", of: node)
        key = reader.id("key", of: node)
        status = reader.string("status", of: node)
        variations = reader.variations(of: node)
        trafficAllocation = reader.trafficAllocation(of: node)
        excludesTargetedDeliveries = reader.optionalBool("excludeTargetedDeliveries", of: node) ?? false
        audienceConditions = reader.audienceConditions(of: node)
        audience = Condition.ofExperiment(audienceConditions, audiences: audiences)
        isBucketed = !key.isBlank
        self.includedRules = includedRules
    }

    public var isRunning: Bool { status == "Running" }
}

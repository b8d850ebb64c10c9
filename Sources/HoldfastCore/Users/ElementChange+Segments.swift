public import Bucketing
public import Chronology
public import Definitions
public import JSON
public import Storage

extension AttributeSchema {
    /// Returns the names of segments that an audience refers to and that are not defined, sorted.
    public func undefinedSegments(in audience: JSONValue) -> [Identifier] {
        Mentions(audience: audience).segments.filter { segments[$0] == nil }.sorted()
    }
}

extension ElementChange {
    /// - Throws: 422 with every undefined segment. Such a name is most likely misspelt, and the segment would admit
    ///   nobody.
    public func checkSegments(_ schema: AttributeSchema) throws(CoreError) {
        var faults = FaultCollector()
        for audience in audiences {
            for name in schema.undefinedSegments(in: audience.conditions) {
                faults.add(schema.unknownSegment(name), at: audience.place)
            }
        }
        try faults.check()
    }

    /// Returns everything that a change of an element is warned of.
    ///
    /// - Parameters:
    ///   - datafile: `nil` if there is no project yet.
    ///   - former: the element as `GET` presents it before the change; `nil` if it is new.
    public func warnings(
        _ schema: AttributeSchema, _ datafile: Datafile?, changing former: JSONValue?, at now: Instant
    ) -> [DefinitionWarning] {
        warnings(schema, datafile) + warnings(changing: former, at: now)
    }

    /// Returns the conditions that no user with defined attributes can meet, and ``trafficWarnings``.
    ///
    /// - Parameter datafile: `nil` if there is no project yet. Then conditions are not looked at.
    public func warnings(_ schema: AttributeSchema, _ datafile: Datafile?) -> [DefinitionWarning] {
        guard let datafile else { return trafficWarnings }
        return trafficWarnings
            + audiences.filter { !$0.conditions.isNull }.flatMap { audience in
                SegmentRules.warnings(
                    in: audience.conditions, at: audience.place, schema: schema,
                    attributes: datafile.attributes.map(\.key)
                ).map { DefinitionWarning(code: .conditionNeverMet, fault: $0) }
            }
    }

    public func warnings(changing former: JSONValue?, at now: Instant) -> [DefinitionWarning] { [] }

    /// A traffic that was most likely meant as a fraction.
    private var trafficWarnings: [DefinitionWarning] {
        guard let traffic, 0 < traffic, traffic < 1 else { return [] }
        let meant = ((traffic * 1e4).rounded() / 100).shortest
        let reason =
            "`traffic` is a percentage: \(traffic.shortest) is \(traffic.shortest)% of the users; if \(meant)% are meant, "
            + "write \(meant)"
        return [
            DefinitionWarning(
                code: .trafficBelowOne, fault: JSONFault(pointer: JSONPointer().appending("traffic"), reason: reason))
        ]
    }
}

/// A warning about a definition that is accepted.
public struct DefinitionWarning: Sendable, CustomStringConvertible {
    public enum Code: String, Sendable, CaseIterable {
        /// No user can meet a condition.
        case conditionNeverMet = "condition_never_met"
        /// A percentage was most likely meant as a fraction.
        case trafficBelowOne = "traffic_below_one"
        /// A change has no effect until an experiment runs.
        case notRunning = "not_running"
        /// The server has made the secret of a webhook.
        case secretMade = "secret_made"
        /// Who may not see webhooks is not told how they differ.
        case webhooksNotCompared = "webhooks_not_compared"
        /// A draft starts at once, because its time has passed.
        case startInPast = "start_in_past"
        /// Variations without weights replace some that had others than equal ones.
        case weightsReset = "weights_reset"

        /// Those of one definition; the others are of files of definitions.
        public static let ofOne: [Code] = [.conditionNeverMet, .trafficBelowOne, .startInPast, .weightsReset]
    }

    public var code: Code
    public var fault: JSONFault

    public init(code: Code, fault: JSONFault) {
        self.code = code
        self.fault = fault
    }

    public var description: String { fault.description }
}

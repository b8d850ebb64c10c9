public import Bucketing
public import Chronology
public import Definitions
public import JSON
public import Storage

extension AttributeSchema {
    /// Returns the undefined segments to which an audience refers, by name, sorted.
    public func undefinedSegments(in audience: JSONValue) -> [Identifier] {
        Mentions(audience: audience).segments.filter { segments[$0] == nil }.sorted()
    }
}

extension ElementChange {
    /// Checks that all segments in audiences are defined. The name of an undefined segment most likely has a spelling
    /// mistake, and nobody would be in the segment.
    ///
    /// - Throws: 422 with every undefined segment.
    public func checkSegments(_ schema: AttributeSchema) throws(CoreError) {
        var faults = FaultCollector()
        for audience in audiences {
            for name in schema.undefinedSegments(in: audience.conditions) {
                faults.add(schema.unknownSegment(name), at: audience.place)
            }
        }
        try faults.check()
    }

    /// Returns all warnings about a change of an element.
    ///
    /// - Parameters:
    ///   - datafile: `nil` if there is no project yet.
    ///   - former: the element as `GET` presents it before the change; `nil` if it is new.
    public func warnings(
        _ schema: AttributeSchema, _ datafile: Datafile?, changing former: JSONValue?, at now: Instant
    ) -> [DefinitionWarning] {
        warnings(schema, datafile) + warnings(changing: former, at: now)
    }

    /// Returns ``trafficWarnings``, and the warnings about conditions that no user with defined attributes can meet.
    ///
    /// - Parameter datafile: `nil` if there is no project yet. Conditions are then not checked.
    public func warnings(_ schema: AttributeSchema, _ datafile: Datafile?) -> [DefinitionWarning] {
        guard let datafile else { return trafficWarnings }
        let listedAttributes = datafile.attributes.map(\.key)
        var warnings = trafficWarnings
        for audience in audiences where !audience.conditions.isNull {
            let faults = SegmentRules.warnings(
                in: audience.conditions, at: audience.place, schema: schema, attributes: listedAttributes)
            warnings += faults.map { DefinitionWarning(code: .conditionNeverMet, fault: $0) }
        }
        return warnings
    }
}

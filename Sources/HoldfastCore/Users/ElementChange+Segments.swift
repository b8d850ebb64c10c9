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
    /// Checks that all segments in audiences are defined. An undefined one most likely has a spelling mistake, and
    /// would admit nobody.
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

    /// Returns the warnings about conditions that no user with defined attributes can meet, and ``trafficWarnings``.
    ///
    /// - Parameter datafile: `nil` if there is no project yet. Conditions are then not checked.
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
}

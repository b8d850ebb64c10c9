public import JSON

extension TrafficAllocation {
    /// As a datafile writes it: `[{"entityId": …, "endOfRange": …}, …]`.
    public var json: JSONValue {
        .array(ranges.map { ["entityId": .string($0.entityID.string), "endOfRange": .integer(Int64($0.end))] })
    }

    /// Reads what a datafile writes.
    ///
    /// - Throws: ``DatafileError`` that names the wrong members, starting from `value`.
    public init(json value: JSONValue) throws(DatafileError) {
        var reader = DatafileReader()
        let member = "trafficAllocation"
        let allocation = reader.trafficAllocation(
            of: DatafileReader.Node(value: .object(JSONObject(.init(key: member, value: value))),
                pointer: JSONPointer())
        )
        guard reader.problems.isEmpty else { throw DatafileError(problems: reader.problems) }
        self = allocation
    }
}

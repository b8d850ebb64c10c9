public import Bucketing
public import JSON

/// The audience of an experiment or a holdout: conditions as they were given, null for everybody; `nil` if a datafile brought
/// others. In the datafile it is an audience of its own, in the form that SDKs know.
public enum GivenAudience {
    /// The id of the audience of an element.
    public static func id(of elementID: Identifier) -> String { "holdfast\(elementID)" }

    /// - Parameters:
    ///   - source: the element in the datafile.
    ///   - given: the conditions, if the datafile has them in another form.
    ///   - conditions: those of the element's audience in the datafile.
    public static func read(_ source: JSONObject, given: JSONValue?, _ conditions: JSONValue?) -> JSONValue? {
        let ids = source["audienceConditions"].flatMap { $0.isNull ? nil : $0 } ?? source["audienceIds"]
        if ids == [] { return .null }
        guard let id = source.identifier("id"), ids == [.string(Self.id(of: id))], let conditions else { return nil }
        // An upload may have changed the conditions since.
        if let given, ConditionDialect.datafileForm(of: given) == conditions { return given }
        return conditions
    }

    /// Writes which audience an element has.
    public static func write(
        _ audience: JSONValue?, of elementID: Identifier, to object: inout JSONObject, replacing source: JSONObject
    ) {
        guard let audience else {
            for member in ["audienceIds", "audienceConditions"] { object[member] = source[member] }
            return
        }
        let ids: JSONValue = audience.isNull ? [] : [.string(id(of: elementID))]
        object["audienceIds"] = ids
        object["audienceConditions"] = audience.isNull ? nil : Optional(ids)
    }

    /// The conditions, if the datafile has them in another form.
    public static func annotation(_ audience: JSONValue?) -> JSONValue? {
        audience.flatMap { ConditionDialect.datafileForm(of: $0) != $0 ? $0 : JSONValue?.none }
    }
}

public import Bucketing
public import JSON

/// The audience of an experiment or a holdout that was defined over the API: the conditions as they were given, or null
/// for everybody. `nil` stands for an audience that an uploaded datafile defines in another way.
///
/// In the datafile the conditions are an audience of their own, in the form that SDKs can evaluate. If that form
/// differs, the given conditions are also kept as an annotation.
public enum GivenAudience {
    /// Returns the id of the audience that belongs to an element.
    public static func id(of elementID: Identifier) -> String { "holdfast\(elementID)" }

    /// Reads the audience of an element from a datafile.
    ///
    /// - Parameters:
    ///   - source: the element in the datafile.
    ///   - given: the ``annotation(_:)`` of the element: the given conditions, if their form in the datafile differs.
    ///   - conditions: the conditions of the element's own audience in the datafile; `nil` if it has none.
    /// - Returns: `nil` if the element has an audience of another form.
    public static func read(_ source: JSONObject, given: JSONValue?, _ conditions: JSONValue?) -> JSONValue? {
        let ids = source["audienceConditions"].flatMap { $0.isNull ? nil : $0 } ?? source["audienceIds"]
        if ids == [] { return .null }
        guard let id = source.identifier("id"), ids == [.string(Self.id(of: id))], let conditions else { return nil }
        // An upload may have changed the audience, but kept the annotation.
        if let given, ConditionDialect.datafileForm(of: given) == conditions { return given }
        return conditions
    }

    /// Sets the members of an element that refer to its audience. Without a given audience, keeps those of the source.
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

    /// Returns the annotation of an element: the given conditions, if their form in the datafile differs; otherwise
    /// `nil`.
    public static func annotation(_ audience: JSONValue?) -> JSONValue? {
        audience.flatMap { ConditionDialect.datafileForm(of: $0) != $0 ? $0 : JSONValue?.none }
    }
}

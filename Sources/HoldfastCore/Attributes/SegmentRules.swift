import Bucketing
public import JSON
public import Storage

/// Validates the conditions of a segment against the schema.
public struct SegmentRules {
    private let schema: AttributeSchema
    private var faults: [JSONFault] = []

    private init(_ schema: AttributeSchema) {
        self.schema = schema
    }

    /// - Parameter place: where the conditions are in the request.
    /// - Returns: each fault that would make a condition unanswerable.
    public static func faults(
        in conditions: JSONValue, at place: JSONPointer, schema: AttributeSchema
    ) -> [JSONFault] {
        ConditionRules.faults(in: conditions, at: place) { leaf, place in
            var rules = SegmentRules(schema)
            rules.check(leaf, place)
            return rules.faults
        }
    }

    private mutating func check(_ leaf: JSONObject, _ place: JSONPointer) {
        guard leaf["type"]?.string == "custom_attribute" else {
            let found = ConditionRules.found(leaf["type"])
            return refuse(place.appending("type"), "`type` must be 'custom_attribute'; got \(found)")
        }
        if let unknown = ConditionRules.unknownMember(of: leaf, knowing: ConditionRules.members, at: place) {
            return faults.append(unknown)
        }
        guard let name = leaf["name"]?.string else {
            return refuse(place.appending("name"), "`name` must be a string; got \(ConditionRules.found(leaf["name"]))")
        }
        guard let attribute = schema.attribute(Identifier(name)) else {
            return refuse(place.appending("name"), schema.unknownAttribute(Identifier(name)))
        }
        let match = leaf["match"] ?? .null
        let matchName = match.isNull ? "exact" : match.string ?? ""
        guard AttributeTest.matches.contains(matchName) else {
            let list = AttributeTest.matches.joined(separator: ", ")
            return refuse(
                place.appending("match"), "`match` must be one of \(list); got \(ConditionRules.found(match))")
        }
        guard matchName != "exists" else { return }
        let value = leaf["value"] ?? .null
        if matchName == "exact" {
            checkExact(value, of: attribute, place.appending("value"))
        } else {
            checkValue(value, matchName, of: attribute, place.appending("value"))
        }
    }

    /// The value of `exact` must be a valid value of the attribute, in the form in which it is stored.
    private mutating func checkExact(_ value: JSONValue, of attribute: AttributeDefinition, _ place: JSONPointer) {
        do throws(AttributeRefusal) {
            let stored = try attribute.value(value)
            if case .selection(let values) = stored, values.count != 1 || value.string == nil {
                refuse(place, "`value` must be one value of the selection, as a string; got \(value.kind)")
            } else if case .moment(let text) = stored, text.string != value.string {
                let found = ConditionRules.found(value)
                refuse(place, "`value` must be written as it is stored, '\(text)'; got \(found)")
            }
        } catch {
            refuse(place, error.description)
        }
    }

    private mutating func checkValue(
        _ value: JSONValue, _ match: String, of attribute: AttributeDefinition, _ place: JSONPointer
    ) {
        let isOrder = ["gt", "ge", "lt", "le"].contains(match)
        switch attribute.type {
        case .number where isOrder:
            if value.usableNumber == nil {
                refuse(
                    place,
                    "`value` must be a number from -2^53 to 2^53; got \(value.double.map { "\($0)" } ?? value.kind)")
            }
        case .date where isOrder, .time where isOrder, .timestamp where isOrder:
            do throws(AttributeRefusal) {
                _ = try attribute.value(value)
            } catch {
                refuse(place, error.description)
            }
        case .number, .boolean: refuse(place, "`match` must suit the type \(attribute.type); got \(match)")
        case _ where isOrder: refuse(place, "`match` must suit the type \(attribute.type); got \(match)")
        case _ where match.hasPrefix("semver_"):
            if value.string.flatMap({ SemanticVersion($0) }) == nil {
                refuse(
                    place, "`value` must be a version such as '1.2.3', as a string; got \(ConditionRules.found(value))")
            }
        default:
            if value.string == nil { refuse(place, "`value` must be a string; got \(value.kind)") }
        }
    }

    private mutating func refuse(_ place: JSONPointer, _ reason: String) {
        faults.append(JSONFault(pointer: place, reason: reason))
    }
}

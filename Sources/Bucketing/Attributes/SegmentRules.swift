/// Checks the conditions of a segment against the schema.
public struct SegmentRules {
    private let schema: AttributeSchema
    private var faults: [ConditionFault] = []

    private init(_ schema: AttributeSchema) {
        self.schema = schema
    }

    /// - Parameter place: where the conditions stand.
    /// - Returns: everything that would keep a condition from ever being answered.
    public static func faults(
        in conditions: JSONValue, at place: JSONPointer, schema: AttributeSchema
    ) -> [ConditionFault] {
        ConditionRules.faults(in: conditions, at: place) { leaf, place in
            var rules = SegmentRules(schema)
            rules.check(leaf, place)
            return rules.faults
        }
    }

    private mutating func check(_ leaf: JSONObject, _ place: JSONPointer) {
        guard leaf["type"]?.string == "custom_attribute" else {
            return refuse(place.appending("type"), "the type of a condition is \"custom_attribute\"")
        }
        if let unknown = ConditionRules.unknownMember(of: leaf, knowing: ConditionRules.members, at: place) {
            return faults.append(unknown)
        }
        guard let name = leaf["name"]?.string, let attribute = schema.attribute(Identifier(name)) else {
            return refuse(place.appending("name"), "there is no attribute of this name")
        }
        let match = leaf["match"] ?? .null
        let matchName = match.isNull ? "exact" : match.string ?? ""
        guard ConditionRules.matches.contains(matchName) else {
            return refuse(place.appending("match"), "the match is one of \(ConditionRules.matches.joined(separator: ", "))")
        }
        guard matchName != "exists" else { return }
        let value = leaf["value"] ?? .null
        if matchName == "exact" {
            checkExact(value, of: attribute, place.appending("value"))
        } else {
            checkValue(value, matchName, of: attribute, place.appending("value"))
        }
    }

    /// The value of `exact` must be one that the attribute can have, as it is stored.
    private mutating func checkExact(_ value: JSONValue, of attribute: AttributeDefinition, _ place: JSONPointer) {
        do throws(AttributeRefusal) {
            let stored = try attribute.value(value)
            if case .selection(let values) = stored, values.count != 1 || value.string == nil {
                refuse(place, "a condition asks for one value of a selection, as a string")
            } else if case .moment(let text) = stored, text.string != value.string {
                refuse(place, "it is stored, and so must be asked for, as \"\(text)\"")
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
            if value.usableNumber == nil { refuse(place, "the value is a number from -2^53 to 2^53") }
        case .date where isOrder, .time where isOrder, .timestamp where isOrder:
            do throws(AttributeRefusal) {
                _ = try attribute.value(value)
            } catch {
                refuse(place, error.description)
            }
        case .number, .boolean: refuse(place, "\(match) asks for what a \(attribute.type) never is")
        case _ where isOrder: refuse(place, "\(match) asks for what a \(attribute.type) never is")
        case _ where match.hasPrefix("semver_"):
            if value.string.flatMap({ SemanticVersion($0) }) == nil { refuse(place, "the value is a version, as a string") }
        default:
            if value.string == nil { refuse(place, "the value is a string, not \(value.kind)") }
        }
    }

    private mutating func refuse(_ place: JSONPointer, _ reason: String) {
        faults.append(ConditionFault(pointer: place, reason: reason))
    }
}

import Bucketing
import Definitions
public import JSON
public import Storage

/// Validates the conditions of a segment against the schema, and finds conditions of audiences that no user can meet.
///
/// Conditions are a tree of `and`, `or` and `not`, whose leaves test one attribute each, such as
/// `{"name":"age","match":"ge","value":18}`. ``ConditionRules`` walks through the tree and calls these rules for each
/// leaf.
public struct SegmentRules {
    private let schema: AttributeSchema
    private var faults: [JSONFault] = []

    private init(_ schema: AttributeSchema) {
        self.schema = schema
    }

    /// Returns the faults that make the conditions of a segment impossible to evaluate.
    ///
    /// - Parameter place: the location of the conditions in the request.
    public static func faults(
        in conditions: JSONValue, at place: JSONPointer, schema: AttributeSchema
    ) -> [JSONFault] {
        ConditionRules.faults(in: conditions, at: place) { leaf, place in
            var rules = SegmentRules(schema)
            rules.check(leaf, place)
            return rules.faults
        }
    }

    /// Returns a fault for each condition of an audience that no user with attributes of the schema can meet. Most
    /// likely the condition has a spelling mistake. It is a warning and not an error, because requests may have other
    /// attributes and values than the schema.
    ///
    /// - Parameter attributes: the attributes that the project's datafile lists.
    static func warnings(
        in audience: JSONValue, at place: JSONPointer, schema: AttributeSchema, attributes: [Identifier]
    ) -> [JSONFault] {
        let listed = Set(attributes)
        // Without any definition every condition would cause a warning.
        guard !schema.attributes.isEmpty || !listed.isEmpty else { return [] }
        return ConditionRules.faults(in: audience, at: place) { leaf, place in
            let testsAttribute = leaf["segment"] == nil && leaf["match"] != "qualified"
            guard testsAttribute, let name = leaf["name"]?.string else { return [] }
            let isCustom = (leaf["type"] ?? "custom_attribute") == "custom_attribute"
            // An attribute that only the datafile lists may have any value.
            let isOnlyListed = schema.attribute(Identifier(name)) == nil && listed.contains(Identifier(name))
            guard isCustom, !isOnlyListed else { return [] }
            var rules = SegmentRules(schema)
            rules.check(leaf, place)
            return rules.faults
        }
    }

    /// Checks a leaf: its members, its attribute and its operator, and then its value.
    private mutating func check(_ leaf: JSONObject, _ place: JSONPointer) {
        let example = ConditionRules.example(for: leaf)
        guard leaf["segment"] == nil else {
            return refuse(
                place.appending("segment"),
                "a segment must not contain another one: repeat the conditions of that segment here, or let the "
                    + #"audience combine both, such as ["and",{"segment":"A"},{"segment":"B"}]"#)
        }
        if let type = leaf["type"], type.string != "custom_attribute" {
            let found = ConditionRules.found(type)
            return refuse(
                place.appending("type"), "`type` must be 'custom_attribute', or absent; got \(found)" + example)
        }
        if let unknown = ConditionRules.unknownMember(of: leaf, knowing: ConditionRules.members, at: place) {
            return faults.append(unknown)
        }
        guard let name = leaf["name"]?.string else {
            let found = ConditionRules.found(leaf["name"])
            return refuse(place.appending("name"), "`name` must be a string; got \(found)" + example)
        }
        guard let attribute = schema.attribute(Identifier(name)) else {
            return refuse(place.appending("name"), schema.unknownAttribute(Identifier(name)))
        }
        let match = leaf["match"] ?? .null
        let matchName = match.isNull ? "exact" : match.string ?? ""
        let matches = AttributeTest.matches + ConditionDialect.lists + TextTest.matches
        guard matches.contains(matchName) else {
            return faults.append(ConditionRules.unknownMatch(of: leaf, matches, at: place))
        }
        guard let ignoresCase = ignoresCase(leaf, matchName, place) else { return }
        check(leaf, matchName, ignoresCase: ignoresCase, of: attribute, place.appending("value"))
    }

    /// Returns the `ignore_case` of a leaf; `nil` if it is invalid.
    private mutating func ignoresCase(_ leaf: JSONObject, _ match: String, _ place: JSONPointer) -> Bool? {
        guard let value = leaf["ignore_case"] else { return false }
        guard let ignoresCase = value.bool else {
            refuse(place.appending("ignore_case"), "`ignore_case` must be true or false; got \(value.kind)")
            return nil
        }
        guard !ignoresCase || TextTest.matchesIgnoringCase.contains(match) else {
            let list = TextTest.matchesIgnoringCase.joined(separator: ", ")
            refuse(place.appending("ignore_case"), "`ignore_case` must accompany one of \(list); got \(match)")
            return nil
        }
        return ignoresCase
    }

    /// Checks the value of a leaf for its operator and the type of its attribute.
    ///
    /// - Parameters:
    ///   - match: the operator.
    ///   - place: the place of the value.
    private mutating func check(
        _ leaf: JSONObject, _ match: String, ignoresCase: Bool, of attribute: AttributeDefinition, _ place: JSONPointer
    ) {
        let value = leaf["value"] ?? .null
        if ConditionDialect.lists.contains(match) {
            if let refusal = ConditionRules.listRefusal(of: leaf) {
                return refuse(place, refusal + ConditionRules.example(for: leaf))
            }
            for (index, element) in (value.array ?? []).enumerated() {
                let place = place.appending(index)
                if ignoresCase {
                    checkText(element, "exact", of: attribute, place)
                } else {
                    checkExact(element, of: attribute, place)
                }
            }
        } else if ignoresCase || TextTest.matches.contains(match) {
            checkText(value, match, of: attribute, place)
        } else if match == "exact" {
            checkExact(value, of: attribute, place)
        } else if match != "exists" {
            checkValue(value, match, of: attribute, place)
        }
    }

    /// Checks the value of an operator that tests a text, such as `substring` or a regular expression.
    private mutating func checkText(
        _ value: JSONValue, _ match: String, of attribute: AttributeDefinition, _ place: JSONPointer
    ) {
        if [.number, .boolean].contains(attribute.type) {
            return refuse(place, "the attribute must be a text for such a condition; got the type \(attribute.type)")
        }
        guard let text = value.string else { return refuse(place, "`value` must be a string; got \(value.kind)") }
        do throws(RegularExpressionError) {
            if match == "matches" { _ = try RegularExpression(text) }
        } catch {
            refuse(place, error.description)
        }
    }

    /// Checks that the value of `exact` is a valid value of the attribute, in its stored form.
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

    /// Checks the value of an operator other than `exact`: an order, a version or a part of a text.
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

    /// Adds a fault.
    private mutating func refuse(_ place: JSONPointer, _ reason: String) {
        faults.append(JSONFault(pointer: place, reason: reason))
    }
}
